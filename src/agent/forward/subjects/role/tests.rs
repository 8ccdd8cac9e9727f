use super::*;

fn names() -> [Name; 2] {
    [
        Name::User("linesman:ada".to_owned()),
        Name::Group("linesman:admin".to_owned()),
    ]
}

fn rules(form: &Form, probing: bool) -> Vec<Value> {
    let role = role(names().iter(), form, probing);
    role["rules"].as_array().unwrap().clone()
}

#[test]
fn the_role_pins_every_name() {
    assert_eq!(
        rules(&Form::Classic, false),
        [
            json!({"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["linesman:ada"]}),
            json!({"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["linesman:admin"]}),
        ]
    );
    let constrained = rules(&Form::Constrained(Scope::Full), false);
    assert_eq!(
        constrained[..2],
        [
            json!({"apiGroups": [GROUP], "resources": ["users"], "verbs": ["impersonate:user-info"], "resourceNames": ["linesman:ada"]}),
            json!({"apiGroups": [GROUP], "resources": ["groups"], "verbs": ["impersonate:user-info"], "resourceNames": ["linesman:admin"]}),
        ]
    );
}

/// Where the constrained rules refuse, the API server would fall back to a legacy one.
#[test]
fn constrained_rules_have_no_legacy_grant_beside_them_and_no_verb_star() {
    let read = Scope::Read([(String::new(), ["pods".to_owned()].into())].into());
    for scope in [Scope::Full, read] {
        for rule in rules(&Form::Constrained(scope), true) {
            let verbs = rule["verbs"].as_array().unwrap();
            assert!(!verbs.is_empty());
            for verb in verbs {
                let verb = verb.as_str().unwrap();
                let constrained = verb == "impersonate:user-info"
                    || verb.starts_with("impersonate-on:user-info:");
                assert!(constrained && !verb.contains('*'), "{rule}");
            }
        }
    }
}

/// L39
#[test]
fn a_read_only_role_names_no_subresource_but_three() {
    let kinds = [
        (
            String::new(),
            ["nodes".to_owned(), "pods".to_owned()].into(),
        ),
        ("apps".to_owned(), ["deployments".to_owned()].into()),
    ];
    let rules = rules(&Form::Constrained(Scope::Read(kinds.into())), false);
    let resources: Vec<String> = rules
        .iter()
        .skip(2)
        .filter_map(|rule| rule["resources"].as_array())
        .flatten()
        .map(|resource| resource.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        resources,
        [
            "*/status",
            "*/scale",
            "*/log",
            "nodes",
            "pods",
            "deployments",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "selfsubjectreviews",
        ]
    );
    let creates = rules.iter().filter(|r| r.to_string().contains(":create"));
    assert_eq!(creates.count(), 2);
    assert!(!json!(rules).to_string().contains(":patch"));
}

#[test]
fn no_name_means_no_rule() {
    for form in [Form::Classic, Form::Constrained(Scope::Full)] {
        assert_eq!(role([].iter(), &form, false)["rules"], json!([]));
    }
    let probe = role([].iter(), &Form::Classic, true);
    assert_eq!(
        probe["rules"],
        json!([
            {"apiGroups": [GROUP], "resources": ["users"], "verbs": ["impersonate:user-info"], "resourceNames": [PROBE]},
            {"nonResourceURLs": ["/version"], "verbs": ["impersonate-on:user-info:get"]},
        ])
    );
}
