use serde_json::json;
use time::OffsetDateTime;

use super::*;

fn claims(mut said: Value) -> Claims {
    said["sub"] = "s1".into();
    let mut claims = Claims::of("s1", OffsetDateTime::UNIX_EPOCH);
    claims.add(&said).unwrap();
    claims
}

fn mapped(said: Value, mapping: &Mapping) -> Result<(String, Vec<String>, usize), ClaimError> {
    let found = identity(&claims(said), mapping)?;
    Ok((
        found.name,
        found.groups.into_iter().collect(),
        found.left_out,
    ))
}

#[test]
fn name_and_groups_come_from_the_claims_that_were_chosen() {
    let mapping = Mapping {
        username_claim: "email".to_owned(),
        username_prefix: "corp:".to_owned(),
        groups_claim: "roles".to_owned(),
        groups_prefix: "idp:".to_owned(),
    };
    let said = json!({"email": "ada@x.org", "email_verified": true, "roles": ["sre", "sre", "dev team", "/path"]});
    let read = mapped(said, &mapping);
    assert_eq!(
        read,
        Ok(("corp:ada@x.org".to_owned(), vec!["idp:sre".to_owned()], 2))
    );
    let one = mapped(json!({"email": "a@x", "roles": "sre"}), &mapping);
    assert_eq!(
        one,
        Ok(("corp:a@x".to_owned(), vec!["idp:sre".to_owned()], 0))
    );
}

#[test]
fn what_cannot_be_a_user_is_refused() {
    let by = |claim: &str| Mapping {
        username_claim: claim.to_owned(),
        ..Mapping::default()
    };
    let cases = [
        (
            json!({}),
            "preferred_username",
            ClaimError::NoName("preferred_username".to_owned()),
        ),
        (
            json!({"email": "a@x", "email_verified": false}),
            "email",
            ClaimError::Unverified,
        ),
        (
            json!({"email": "a@x", "email_verified": "true"}),
            "email",
            ClaimError::Unverified,
        ),
        (
            json!({"name": "Ada L"}),
            "name",
            ClaimError::Name("Ada L".to_owned()),
        ),
        (
            json!({"name": ["ada"]}),
            "name",
            ClaimError::NoName("name".to_owned()),
        ),
        (
            json!({"groups": {"a": 1}}),
            "sub",
            ClaimError::Groups("groups".to_owned()),
        ),
        (
            json!({"groups": [1]}),
            "sub",
            ClaimError::Groups("groups".to_owned()),
        ),
    ];
    for (said, claim, error) in cases {
        assert_eq!(mapped(said, &by(claim)), Err(error));
    }
    assert_eq!(
        mapped(json!({}), &by("sub")),
        Ok(("s1".to_owned(), vec![], 0))
    );
}

/// As Entra ID does for people with more than 200 groups: that is not the same as none.
#[test]
fn groups_that_the_provider_leaves_out_are_not_taken_for_none() {
    let by = |claim: &str| Mapping {
        groups_claim: claim.to_owned(),
        ..Mapping::default()
    };
    let left_out = |claim: &str| Err(ClaimError::LeftOut(claim.to_owned()));
    let (none, sre) = (vec![], vec!["sre".to_owned()]);
    let sources = json!({"src1": {"endpoint": "https://graph.example/getMemberObjects"}});
    let elsewhere =
        |claim: &str| json!({"_claim_names": {claim: "src1"}, "_claim_sources": sources});
    let with_null = json!({"groups": null, "_claim_names": {"groups": "src1"}});
    let listed = json!({"groups": ["sre"], "_claim_names": {"groups": "src1"}});
    let cases = [
        (elsewhere("groups"), "groups", left_out("groups")),
        (elsewhere("roles"), "roles", left_out("roles")),
        (with_null, "groups", left_out("groups")),
        (json!({"hasgroups": true}), "groups", left_out("groups")),
        // Of another claim, which grants do not name.
        (elsewhere("groups"), "roles", Ok(none.clone())),
        (json!({"hasgroups": true}), "roles", Ok(none.clone())),
        (json!({"hasgroups": false}), "groups", Ok(none)),
        // The userinfo endpoint said it.
        (listed, "groups", Ok(sre)),
    ];
    for (mut said, claim, expected) in cases {
        said["preferred_username"] = "ada".into();
        let groups = mapped(said.clone(), &by(claim)).map(|(_, groups, _)| groups);
        assert_eq!(groups, expected, "{claim} {said}");
    }
}

#[test]
fn too_many_groups_are_cut_and_counted() {
    let many: Vec<String> = (0..MAX_GROUPS + 7).map(|n| format!("g{n:04}")).collect();
    let (_, groups, left) = mapped(
        json!({"preferred_username": "ada", "groups": many}),
        &Mapping::default(),
    )
    .unwrap();
    assert_eq!((groups.len(), left), (MAX_GROUPS, 7));
}
