use super::*;
use crate::wire::api::EngineKind;

fn values(access: AccessLevel) -> AdoptionValues {
    AdoptionValues {
        access,
        ..AdoptionValues::placeholders()
    }
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
}

/// H7: what the agent may do, and under which Pod security it runs, changes with these files alone.
#[test]
fn the_printed_manifests_equal_the_files() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test that rewrites its golden file on demand"
    )]
    let update = std::env::var("LINESMAN_UPDATE_GOLDEN").is_ok();
    let manifests = std::path::Path::new("manifests");
    for (engine, scope, file) in [
        (EngineKind::Flux, None, "agent.yaml"),
        (EngineKind::Argocd, None, "agent-argocd.yaml"),
        (EngineKind::Flux, Some(scoped()), "agent-namespaces.yaml"),
    ] {
        let values = AdoptionValues {
            engine,
            scope,
            ..AdoptionValues::placeholders()
        };
        let (text, path) = (to_yaml(&adoption(&values)), manifests.join(file));
        if update {
            std::fs::write(&path, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == text,
            "manifests/{file} drifted: run LINESMAN_UPDATE_GOLDEN=1 cargo test --lib manifests"
        );
    }
}

fn scoped() -> Scope {
    Scope {
        namespaces: ["shop".to_owned(), "shop-db".to_owned()].into(),
        strict: false,
        access: AccessLevel::Edit,
    }
}

/// Of a Pod on a node with Windows nobody would hear: the cluster's owner applied the YAML, and no agent comes.
#[test]
fn agent_and_hub_run_on_nodes_with_linux_alone() {
    let agent = adoption(&values(AccessLevel::View));
    let hub = hub::objects(&hub::tests::values());
    for (objects, kind) in [(agent, "Deployment"), (hub, "StatefulSet")] {
        let workload = objects.iter().find(|o| o["kind"] == kind).unwrap();
        let nodes = &workload["spec"]["template"]["spec"]["nodeSelector"];
        assert_eq!(*nodes, json!({"kubernetes.io/os": "linux"}), "{kind}");
    }
}

/// H35: in the whole cluster nobody reads and no group is let in; the agent gives what the owner names, where he says.
#[test]
fn where_namespaces_are_covered_no_access_is_bound_in_the_whole_cluster() {
    let values = AdoptionValues {
        scope: Some(scoped()),
        ..AdoptionValues::placeholders()
    };
    let objects = adoption(&values);
    let bound: Vec<_> = objects
        .iter()
        .filter(|o| o["kind"] == "ClusterRoleBinding")
        .map(|o| o["metadata"]["name"].clone())
        .collect();
    assert_eq!(
        bound,
        ["linesman-agent", "linesman-line-subjects", "linesman-scope"]
    );
    let rules = &find(&objects, "ClusterRole", "linesman-scope").unwrap()["rules"];
    assert_eq!(
        rules[2],
        json!({
            "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
            "resourceNames": ["linesman-read", "view", "edit"], "verbs": ["bind"],
        })
    );
    let agent = &find(&objects, "ClusterRole", AGENT).unwrap()["rules"];
    let made = agent.as_array().unwrap().iter().filter(|rule| {
        let names = rule["resourceNames"].as_array();
        let read = names.is_some_and(|n| n.contains(&json!(READ_ROLE)));
        read && rule["resources"] == json!(["clusterrolebindings"])
    });
    let verbs: Vec<_> = made.map(|rule| rule["verbs"].clone()).collect();
    assert_eq!(verbs, [json!(["delete"])]);
    let container = &objects.last().unwrap()["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "LINESMAN_SCOPED", "value": "true"})));
    assert!(!to_yaml(&adoption(&AdoptionValues::placeholders())).contains("SCOPED"));
}

#[test]
fn namespace_comes_first_and_deployment_last() {
    let objects = adoption(&values(AccessLevel::Admin));
    assert_eq!(objects.first().unwrap()["kind"], "Namespace");
    assert_eq!(objects.last().unwrap()["kind"], "Deployment");
}

/// H7
#[test]
fn no_rule_has_a_star() {
    for engine in [EngineKind::Flux, EngineKind::Argocd] {
        let values = AdoptionValues {
            engine,
            ..AdoptionValues::placeholders()
        };
        for object in adoption(&values) {
            assert!(!object["rules"].to_string().contains('*'), "{object}");
        }
    }
}

#[test]
fn of_an_engines_own_kinds_only_those_with_an_inventory_may_be_deleted_everywhere() {
    let objects = adoption(&values(AccessLevel::Admin));
    let mut deletable = Vec::new();
    for role in [AGENT, READ_ROLE] {
        let rules = &find(&objects, "ClusterRole", role).unwrap()["rules"];
        for rule in rules.as_array().unwrap() {
            let named = rule.get("resourceNames").is_some();
            let deletes = rule["verbs"].as_array().unwrap().contains(&json!("delete"));
            if deletes && !named {
                deletable.push((rule["apiGroups"].clone(), rule["resources"].clone()));
            }
        }
    }
    let expected = [
        ("helm.toolkit.fluxcd.io", "helmreleases"),
        ("kustomize.toolkit.fluxcd.io", "kustomizations"),
    ];
    assert_eq!(
        deletable,
        expected.map(|(group, kind)| (json!([group]), json!([kind])))
    );
    assert!(is_inventory(expected[0].0, expected[0].1));
    assert!(!is_inventory("argoproj.io", "applications"));
}

#[test]
fn secrets_are_readable_only_where_the_agent_keeps_its_own_or_the_engine_lives() {
    let objects = adoption(&values(AccessLevel::Admin));
    for role in [AGENT, READ_ROLE] {
        let rules = find(&objects, "ClusterRole", role).unwrap()["rules"].to_string();
        assert!(
            !rules.contains("secrets") && !rules.contains("configmaps"),
            "{role}: {rules}"
        );
    }
    let bound_everywhere: Vec<_> = objects
        .iter()
        .filter(|o| o["kind"] == "ClusterRoleBinding" && o["roleRef"]["name"] == ENGINE_ROLE)
        .collect();
    assert!(bound_everywhere.is_empty());
}

#[test]
fn access_bounds_the_groups_that_are_bound() {
    let groups = |access| -> Vec<String> {
        adoption(&values(access))
            .iter()
            .filter(|o| o["subjects"][0]["kind"] == "Group")
            .map(|o| {
                format!(
                    "{} {}",
                    o["subjects"][0]["name"].as_str().unwrap(),
                    o["roleRef"]["name"].as_str().unwrap()
                )
            })
            .collect()
    };
    assert_eq!(groups(AccessLevel::Off), Vec::<String>::new());
    assert_eq!(groups(AccessLevel::View), ["linesman:view view"]);
    assert_eq!(
        groups(AccessLevel::Admin),
        [
            "linesman:view view",
            "linesman:edit edit",
            "linesman:admin cluster-admin"
        ]
    );
}

/// To apply the YAML of a more narrow access has to take away what the one before gave.
#[test]
fn groups_above_the_access_are_bound_without_anybody() {
    for (access, bound) in [
        (AccessLevel::Off, [false, false, false]),
        (AccessLevel::View, [true, false, false]),
        (AccessLevel::Edit, [true, true, false]),
        (AccessLevel::Admin, [true, true, true]),
    ] {
        let objects = adoption(&values(access));
        let names = ["linesman-view", "linesman-edit", "linesman-admin"];
        let there = names.map(|name| {
            let binding = find(&objects, "ClusterRoleBinding", name).unwrap();
            binding["subjects"].as_array().unwrap().len()
        });
        assert_eq!(there, bound.map(usize::from), "{access:?}");
    }
}

/// `cluster remove` names this label where the agent is out of reach.
#[test]
fn roles_and_bindings_are_found_by_one_label() {
    for scope in [None, Some(scoped())] {
        let values = AdoptionValues {
            scope,
            ..AdoptionValues::placeholders()
        };
        for object in adoption(&values) {
            if object["apiVersion"] == "rbac.authorization.k8s.io/v1" {
                let label = &object["metadata"]["labels"]["app.kubernetes.io/name"];
                assert_eq!(label, AGENT, "{object}");
            }
        }
    }
    let covered = scope::binding("linesman-view", "shop");
    let label = &covered["metadata"]["labels"]["app.kubernetes.io/name"];
    assert_eq!(label, AGENT);
}

#[test]
fn the_line_account_is_bound_to_nothing_but_its_subjects() {
    let objects = adoption(&values(AccessLevel::Admin));
    let roles: Vec<_> = objects
        .iter()
        .filter(|o| o["subjects"][0]["name"] == LINE_ACCOUNT)
        .map(|o| o["roleRef"]["name"].clone())
        .collect();
    assert_eq!(roles, [LINE_SUBJECTS]);
    let role = find(&objects, "ClusterRole", LINE_SUBJECTS).unwrap();
    assert_eq!(role.get("rules"), None);
}

#[test]
fn hub_keys_survive_their_text_form() {
    let keys = AdoptionValues::placeholders().hub_keys;
    assert_eq!(parse_hub_key_lines(&hub_key_lines(&keys)), keys);
    assert_eq!(parse_hub_key_lines("\njunk\n"), []);
}

#[test]
fn the_token_appears_once() {
    let text = to_yaml(&adoption(&AdoptionValues::placeholders()));
    assert_eq!(text.matches("JOIN-TOKEN").count(), 1);
}

/// W32: the agent's rights are in the namespace that the owner chose for Argo CD, and no longer in the usual one.
#[test]
fn a_chosen_namespace_takes_the_place_of_the_usual_one() {
    let chosen = AdoptionValues {
        engine: EngineKind::Argocd,
        engines: EngineNamespaces::new("gitops".to_owned()),
        ..AdoptionValues::placeholders()
    };
    let [before, after] =
        [AdoptionValues::placeholders(), chosen].map(|values| to_yaml(&adoption(&values)));
    let lines = |text: &str, word: &str| {
        let all = text.lines().map(str::trim);
        all.filter(|line| *line == format!("- {word}")).count()
    };
    // A rule on Namespaces, and the policy on who reaches the Git relay.
    assert_eq!([lines(&before, "argocd"), lines(&before, "gitops")], [2, 0]);
    assert_eq!([lines(&after, "argocd"), lines(&after, "gitops")], [0, 2]);
    let variable = "- name: LINESMAN_ARGOCD_NAMESPACE\n          value: gitops\n";
    assert!(after.contains(variable), "{after}");
    assert!(!before.contains(ARGOCD_NAMESPACE), "{before}");
}

#[test]
fn an_engine_gets_no_namespace_of_the_clusters_own() {
    for good in [
        "argocd",
        "gitops",
        "openshift-gitops",
        "a",
        "7",
        "kubernetes",
    ] {
        assert_eq!(engine_namespace(good), Ok(good.to_owned()));
    }
    let long = "a".repeat(64);
    let shapeless = [
        "", "Argo", "a_b", "a.b", "-a", "a-", "a b", "é", "a/b", &long,
    ];
    for bad in shapeless {
        let error = engine_namespace(bad).unwrap_err();
        assert!(error.contains("no name of a namespace"), "{bad}: {error}");
    }
    for taken in ["linesman", "flux-system", "default", "kube-system"] {
        let error = engine_namespace(taken).unwrap_err();
        assert!(error.contains("not for an engine"), "{taken}: {error}");
    }
}

/// L54: by the probe's own fields an agent in which something stands still is gone and back within a minute.
#[test]
fn the_probe_replaces_what_stands_still_within_a_minute() {
    // After so long `/livez` tells of a task; a process that stands as a whole answers nothing, and each look takes its whole time.
    const TOLD: u64 = 10;
    // For the kubelet to see the end, and to start the container.
    const LATE: u64 = 5;
    let container = container(&AdoptionValues::placeholders());
    let field = |name: &str| container["livenessProbe"][name].as_u64().unwrap();
    let looks = field("periodSeconds") * field("failureThreshold");
    let end = field("terminationGracePeriodSeconds") + LATE;
    let (task, process) = (TOLD + looks + end, looks + field("timeoutSeconds") + end);
    assert!(task.max(process) <= 60, "{task} s, {process} s");
}

/// L54: of a process that stands as a whole, too, within 10 s of its last good answer: each look that nobody answers takes its whole
/// time, and the next one begins where the period ends.
#[test]
fn the_probe_calls_an_agent_that_stands_still_not_ready_within_ten_seconds() {
    let container = container(&AdoptionValues::placeholders());
    let field = |name: &str| container["readinessProbe"][name].as_u64().unwrap();
    let (period, timeout) = (field("periodSeconds"), field("timeoutSeconds"));
    assert!(timeout <= period, "{timeout} s, {period} s");
    let told = period * field("failureThreshold") + timeout;
    assert!(told < 10, "{told} s");
}
