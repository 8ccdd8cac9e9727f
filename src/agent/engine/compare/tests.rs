use serde_json::json;

use super::*;

#[test]
fn defaults_and_foreign_fields_are_no_drift() {
    let wanted = json!({
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": {
            "limits": {"cpu": "1000m", "memory": "1Gi"}, "sel": {}, "off": false,
            "ports": [{"containerPort": 80, "name": "h"}], "ns": [{"namespaceSelector": {}}],
        },
    });
    let live = json!({
        "metadata": {"name": "x", "labels": {"a": "b", "c": "d"}},
        "spec": {
            "limits": {"cpu": "1", "memory": "1024Mi"}, "sel": {}, "policy": "Always",
            "ports": [{"containerPort": 9}, {"containerPort": 80, "name": "h", "protocol": "TCP"}],
            "ns": [{"namespaceSelector": {}}],
        },
        "status": {},
    });
    assert_eq!(drift(&wanted, &live), Vec::<String>::new());
}

/// Found by a random day: one key more in a Service's selector, and no Pod is behind it.
#[test]
fn a_selector_holds_as_a_whole() {
    let service = |selector: Value| json!({"spec": {"selector": selector}});
    let wanted = service(json!({"app": "a"}));
    let live = service(json!({"app": "a", "more": "b"}));
    assert_eq!(drift(&wanted, &live), ["/spec/selector"]);
    assert_eq!(drift(&wanted, &wanted), Vec::<String>::new());
    let policy = |peer: Value| json!({"spec": {"ingress": [{"from": [{"podSelector": peer}]}]}});
    let narrow = policy(json!({"matchLabels": {"app": "a"}}));
    let at = ["/spec/ingress/0/from/0/podSelector"];
    assert_eq!(drift(&policy(json!({})), &narrow), at);
}

/// F33: what a rule of a policy has more lets less through, and nothing of what it had is gone.
#[test]
fn a_rule_of_a_policy_holds_as_a_whole() {
    let port = json!([{"port": 8080, "protocol": "TCP"}]);
    let block = json!([{"ipBlock": {"cidr": "10.0.0.0/8"}}]);
    let peer = json!([{"podSelector": {}}]);
    let unnamed = json!([{"port": 8080}]);
    let all = json!([{"podSelector": {}, "namespaceSelector": {}}]);
    for (wanted, live, differs) in [
        (json!({}), json!({}), false),
        (json!({}), json!({"to": []}), false),
        (json!({}), json!({"to": block}), true),
        (json!({}), json!({"ports": port}), true),
        (
            json!({"to": peer}),
            json!({"ports": null, "to": peer}),
            false,
        ),
        (
            json!({"to": peer}),
            json!({"ports": port, "to": peer}),
            true,
        ),
        (json!({"to": peer}), json!({"to": all}), true),
        (json!({"ports": unnamed}), json!({"ports": port}), false),
    ] {
        let policy = |rule: &Value| json!({"spec": {"egress": [rule]}});
        let found = drift(&policy(&wanted), &policy(&live));
        let at: &[&str] = if differs { &["/spec/egress"] } else { &[] };
        assert_eq!(found, at, "{wanted} {live}");
    }
}

#[test]
fn changed_fields_are_named() {
    let wanted = json!({
        "metadata": {"labels": {"k8s.io/x": "1"}},
        "spec": {"replicas": 1, "containers": [{"name": "m", "image": "a:1", "args": ["--x", "--y"]}]},
        "rules": [{"verbs": ["get"], "resources": ["*"]}],
    });
    let live = json!({
        "metadata": {},
        "spec": {"replicas": 0, "containers": [{"name": "m", "image": "a:2", "args": ["--x"]}]},
        "rules": [{"verbs": ["get"], "resources": ["*"], "resourceNames": ["one"]}],
    });
    assert_eq!(
        drift(&wanted, &live),
        [
            "/metadata/labels",
            "/rules",
            "/spec/containers/m/args",
            "/spec/containers/m/image",
            "/spec/replicas",
        ]
    );
}

/// W8
#[test]
fn a_volume_from_elsewhere_is_named_also_where_nothing_was_said_of_the_wanted_one() {
    let with = |volume: Value| json!({"spec": {"template": {"spec": {"volumes": [volume]}}}});
    let wanted = with(json!({"name": "temp", "emptyDir": {}}));
    for (live, differs) in [
        (json!({"name": "temp", "emptyDir": {}}), false),
        (
            json!({"name": "temp", "emptyDir": {"medium": "Memory"}}),
            false,
        ),
        (json!({"name": "temp", "configMap": {"name": "x"}}), true),
        (
            json!({"name": "temp", "emptyDir": null, "secret": {}}),
            true,
        ),
    ] {
        let found = drift(&wanted, &with(live.clone()));
        let at = "/spec/template/spec/volumes/temp".to_owned();
        let expected = if differs { vec![at] } else { vec![] };
        assert_eq!(found, expected, "{live}");
    }
    // The API server makes it an empty one.
    let unsaid = with(json!({"name": "temp"}));
    assert_eq!(drift(&unsaid, &wanted), [""; 0]);
}

#[test]
fn what_somebody_added_to_a_pod_is_named() {
    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let wanted = pod(json!({"containers": [{"name": "m"}], "volumes": [{"name": "tmp"}]}));
    let live = pod(json!({
        "containers": [{"name": "m", "command": ["sleep"], "env": [{"name": "X"}]}, {"name": "side"}],
        "volumes": [{"name": "tmp"}, {"name": "gone"}],
        "nodeSelector": {"no": "where"}, "hostNetwork": false,
    }));
    assert_eq!(
        additions(&wanted, &live),
        [
            "/spec/template/spec/nodeSelector",
            "/spec/template/spec/containers/side",
            "/spec/template/spec/volumes/gone",
            "/spec/template/spec/containers/env/X",
            "/spec/template/spec/containers/command",
        ]
    );
    assert_eq!(additions(&wanted, &wanted), Vec::<String>::new());
}

/// F36: a namespace's Pod Security takes no Pod with these.
#[test]
fn rights_that_somebody_added_to_a_pod_are_named() {
    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let dropped = json!({"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true});
    let mut more = dropped.clone();
    more["capabilities"]["add"] = json!(["NET_ADMIN"]);
    more["runAsUser"] = json!(0);
    more["seccompProfile"] = json!({"type": "RuntimeDefault"});
    let wanted = pod(json!({"containers": [{"name": "m", "securityContext": dropped}]}));
    let live = pod(json!({
        "hostPID": true, "hostIPC": true, "securityContext": {"sysctls": []},
        "containers": [{"name": "m", "securityContext": more}],
    }));
    assert_eq!(
        additions(&wanted, &live),
        [
            "/spec/template/spec/hostPID",
            "/spec/template/spec/hostIPC",
            "/spec/template/spec/securityContext/sysctls",
            "/spec/template/spec/containers/securityContext/capabilities/add",
            "/spec/template/spec/containers/securityContext/runAsUser",
        ]
    );
    assert_eq!(additions(&live, &live), Vec::<String>::new());
}

/// F8, F10: of none of these the manifests of Argo CD say anything, and each of them ends a controller.
#[test]
fn bounds_and_conditions_that_somebody_added_to_a_pod_are_named() {
    let pod = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let wanted = pod(json!({"containers": [{"name": "m", "resources": {"limits": {"cpu": "1"}}}]}));
    // What the API server makes of that.
    let completed = pod(json!({
        "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
        "containers": [{"name": "m", "resources": {"limits": {"cpu": "1"}}}],
    }));
    assert_eq!(additions(&wanted, &completed), [""; 0]);
    let bare = pod(json!({"containers": [{"name": "m"}]}));
    let empty = pod(json!({
        "automountServiceAccountToken": true, "hostAliases": [],
        "containers": [{"name": "m", "resources": {}}],
    }));
    assert_eq!(additions(&bare, &empty), [""; 0]);
    let live = pod(json!({
        "dnsPolicy": "None", "schedulerName": "nobody", "automountServiceAccountToken": false,
        "readinessGates": [{"conditionType": "never"}],
        "containers": [{
            "name": "m", "livenessProbe": {"exec": {"command": ["false"]}},
            "resources": {"limits": {"cpu": "2", "memory": "10Mi"}, "requests": {"cpu": "900"}},
        }],
    }));
    assert_eq!(
        additions(&wanted, &live),
        [
            "/spec/template/spec/readinessGates",
            "/spec/template/spec/schedulerName",
            "/spec/template/spec/dnsPolicy",
            "/spec/template/spec/automountServiceAccountToken",
            "/spec/template/spec/containers/resources/limits/memory",
            "/spec/template/spec/containers/resources/requests/cpu",
            "/spec/template/spec/containers/livenessProbe",
        ]
    );
    assert_eq!(additions(&live, &live), [""; 0]);
}

/// F8: admission names no field manager for what it gives, and once that is known it is no addition.
#[test]
fn bounds_that_are_known_are_no_additions() {
    let pod =
        |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let of = |resources: Value| pod(json!([{"name": "m", "resources": resources}]));
    let known = of(json!({"limits": {"cpu": "1"}}));
    let live = of(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}));
    let more = bounds(&known, &live).unwrap();
    let expected = json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}});
    assert_eq!(more, of(expected));
    assert_eq!(additions(&known, &live).len(), 2);
    assert_eq!(additions(&merged(&known, &more), &live), [""; 0]);
    for (known, live) in [
        (&live, &live),
        (&live, &known),
        (&pod(json!([{"name": "m"}])), &of(json!({}))),
        (&pod(json!([])), &live),
        (&json!({}), &json!({})),
    ] {
        assert_eq!(bounds(known, live), None, "{known} {live}");
    }
}

/// F3, F4: 'kubectl rollout pause', and what is mended then comes to no Pod.
#[test]
fn what_keeps_pods_from_a_mended_version_is_named() {
    let workload = |mut spec: Value| {
        spec["template"] = json!({"spec": {"containers": [{"name": "m"}]}});
        json!({"spec": spec})
    };
    let wanted = workload(json!({"replicas": 1}));
    let rolling = |partition: u8| json!({"rollingUpdate": {"partition": partition}});
    for (spec, added) in [
        (json!({"paused": true}), Some("/spec/paused")),
        (json!({"paused": false}), None),
        (
            json!({"minReadySeconds": 3600}),
            Some("/spec/minReadySeconds"),
        ),
        (
            json!({"updateStrategy": rolling(1)}),
            Some("/spec/updateStrategy/rollingUpdate/partition"),
        ),
        (json!({"updateStrategy": rolling(0)}), None),
    ] {
        let live = workload(spec);
        let added: Vec<&str> = added.into_iter().collect();
        assert_eq!(additions(&wanted, &live), added, "{live}");
        assert_eq!(additions(&live, &live), [""; 0]);
    }
}

#[test]
fn settings_that_differ_are_named_added_ones_too() {
    let known = json!({"a": "1", "b": "2", "c": "3"});
    let live = json!({"data": {"a": "1", "b": "x", "repo/server": "none"}});
    assert_eq!(
        settings(&known, &live),
        ["/data/b", "/data/c", "/data/repo~1server"]
    );
    assert_eq!(settings(&json!({}), &json!({})), Vec::<String>::new());
}

#[test]
fn quantities_are_numbers() {
    for (a, b) in [
        ("1", "1000m"),
        ("0.5", "500m"),
        ("1Gi", "1024Mi"),
        ("1.5Ki", "1536"),
        ("1k", "1000"),
    ] {
        assert_eq!(quantity(a), quantity(b), "{a} {b}");
        assert!(quantity(a).is_some());
    }
    for junk in ["", "x", "1Q", "--", "1.2.3", "main"] {
        assert_eq!(quantity(junk), None, "{junk}");
    }
}

/// As server-side apply would have both managers' fields; what one says of a list without keys is the whole list.
#[test]
fn what_others_have_is_joined_by_the_keys_of_lists() {
    let base = json!({
        "replicas": 1,
        "containers": [{"name": "m", "image": "i:1", "args": ["a"], "env": [{"name": "A", "value": "1"}]}],
        "tolerations": [{"key": "ours"}],
    });
    let more = json!({
        "replicas": 3, "affinity": {"nodeAffinity": {}},
        "containers": [
            {"name": "m", "args": ["b"], "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "2"}]},
            {"name": "side", "image": "s:1"},
        ],
        "tolerations": [{"key": "theirs"}],
    });
    let both = json!({
        "replicas": 1, "affinity": {"nodeAffinity": {}},
        "containers": [
            {"name": "m", "image": "i:1", "args": ["a"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "side", "image": "s:1"},
        ],
        "tolerations": [{"key": "ours"}],
    });
    assert_eq!(merged(&base, &more), both);
    assert_eq!(merged(&base, &json!({})), base);
}
