use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn asked(set: &[(&str, &str)], remove: &[&str], overwrite: bool) -> LabelsRequest {
    LabelsRequest {
        set: labels(set),
        remove: remove.iter().map(|key| (*key).to_owned()).collect(),
        overwrite,
    }
}

#[test]
fn what_is_not_named_stays_and_other_values_are_overwritten_on_a_word_only() {
    let before = labels(&[("env", "dev"), ("team", "shop")]);
    let after = |asked: &LabelsRequest| changed(&before, asked).map_err(|problem| problem.slug);
    assert_eq!(
        after(&asked(&[("ring", "1")], &["team", "absent"], false)),
        Ok(labels(&[("env", "dev"), ("ring", "1")]))
    );
    let other = [("env", "prod")];
    assert_eq!(after(&asked(&other, &[], false)), Err(Slug::Exists));
    assert_eq!(
        after(&asked(&other, &[], true)),
        Ok(labels(&[("env", "prod"), ("team", "shop")]))
    );
    // The same value again is no change.
    assert_eq!(
        after(&asked(&[("env", "dev")], &[], false)),
        Ok(before.clone())
    );
    for wrong in [
        asked(&[], &[], true),
        asked(&[("env", "a")], &["env"], true),
        asked(&[("linesman.dev/x", "a")], &[], true),
        asked(&[("env", "a b")], &[], true),
        asked(&[("env", "a/b")], &[], true),
    ] {
        assert_eq!(after(&wrong), Err(Slug::BadRequest), "{wrong:?}");
    }
    let full: Labels = (0..64).map(|n| (format!("l{n}"), String::new())).collect();
    let more = changed(&full, &asked(&[("one", "more")], &[], false));
    assert_eq!(more.map_err(|p| p.slug), Err(Slug::BadRequest));
}

#[test]
fn the_record_says_what_became_other() {
    let before = labels(&[("env", "dev"), ("frozen", ""), ("team", "shop")]);
    let after = labels(&[("env", "prod"), ("ring", "1"), ("team", "shop")]);
    assert_eq!(
        told(&before, &after),
        "env=prod (was env=dev), frozen-, ring=1"
    );
}
