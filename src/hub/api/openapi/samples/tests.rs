use super::*;
use crate::wire::api;

fn reads_as<T: serde::de::DeserializeOwned + serde::Serialize>(name: &str) -> bool {
    let (_, sample) = all().into_iter().find(|(n, _)| *n == name).unwrap();
    let read: T = serde_json::from_value(sample.clone()).unwrap();
    let back = serde_json::to_value(read).unwrap();
    let (Value::Object(sample), Value::Object(back)) = (&sample, &back) else {
        return false;
    };
    sample.keys().all(|key| back.contains_key(key))
}

fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(n, v)| (n.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        let at = format!("{at}/{key}");
        places(child, &at, all);
        all.push(at);
    }
}

/// H51: of what an agent of a later version says, only what is not understood is lost.
#[test]
fn a_foreign_word_in_a_report_costs_only_what_it_names() {
    let mut sample = report();
    for list in ["steps", "conditions", "heals"] {
        let one = sample[list][0].clone();
        sample[list] = json!([one.clone(), one]);
    }
    let mut all = Vec::new();
    places(&sample, "", &mut all);
    let deep = |at: &&String| at.matches('/').count() > 1 && !at.starts_with("/agent/");
    for at in all.iter().filter(deep) {
        for word in [json!("later"), json!({ "later": [1] })] {
            let mut body = sample.clone();
            *body.pointer_mut(at).unwrap() = word.clone();
            let read: api::Report =
                serde_json::from_value(body).unwrap_or_else(|e| panic!("{at} {word}: {e}"));
            let parts: Vec<&str> = at.split('/').collect();
            let mut back = serde_json::to_value(read).unwrap();
            if let Value::Array(left) = &back[parts[1]] {
                // The element itself may be gone, its neighbour is there.
                assert!(left.contains(&sample[parts[1]][1]), "{at} {word}: {left:?}");
            }
            let mut rest = sample.clone();
            for body in [&mut back, &mut rest] {
                body[parts[1]] = Value::Null;
            }
            assert_eq!(back, rest, "{at} {word}");
        }
    }
}

/// The places of a view where a word of tomorrow is not read, or not kept as it was said.
fn deaf<T: serde::de::DeserializeOwned + serde::Serialize>(name: &str) -> Vec<String> {
    let (_, sample) = all().into_iter().find(|(n, _)| *n == name).unwrap();
    let mut all = Vec::new();
    places(&sample, "", &mut all);
    let word = json!("tomorrow");
    all.retain(|at| {
        let mut body = sample.clone();
        let place = body.pointer_mut(at).unwrap();
        if !place.is_string() {
            return false;
        }
        *place = word.clone();
        let read = serde_json::from_value::<T>(body);
        let back = read.map(|read| serde_json::to_value(read).unwrap());
        back.map_or(true, |back| back.pointer(at) != Some(&word))
    });
    all
}

/// H51: what a later hub shows in words of its own fails no answer to people, and is shown to them.
#[test]
fn who_reads_a_view_hears_words_of_a_later_hub() {
    let none: [&str; 0] = [];
    assert_eq!(deaf::<api::ToldCluster>("ClusterView"), none);
    assert_eq!(deaf::<api::ToldAdoption>("AdoptionAnswer"), none);
    assert_eq!(deaf::<api::ToldGitRoute>("GitRouteView"), none);
    assert_eq!(deaf::<api::ToldHeal>("HealView"), none);
    assert_eq!(deaf::<api::ToldGitHost>("GitHostView"), none);
    assert_eq!(deaf::<api::GrantView>("GrantView"), none);
    assert_eq!(deaf::<api::GrantCheck>("GrantCheck"), none);
    assert_eq!(deaf::<api::HubInfo>("HubInfo"), none);
    assert_eq!(deaf::<api::LineDetail>("LineDetail"), none);
    assert_eq!(deaf::<api::AuditView>("AuditView"), none);
    assert_eq!(deaf::<api::UserView>("UserView"), none);
    assert_eq!(deaf::<api::ApiTokenView>("ApiTokenView"), none);
    assert_eq!(deaf::<api::WhoAmI>("WhoAmI"), none);
    assert_eq!(deaf::<api::SignersView>("SignersView"), none);
    assert_eq!(deaf::<api::SshKeyView>("SshKeyView"), none);
    // A digest has a form, and is no word of a set.
    assert_eq!(deaf::<api::ToldBundle>("BundleView"), ["/digest"]);
    let mut cluster = cluster();
    cluster["scope"]["until"] = json!("tomorrow");
    let read: api::ToldCluster = serde_json::from_value(cluster).unwrap();
    assert_eq!(read.scope.unwrap().namespaces, ["shop"]);
}

/// H51: the same of other bodies between agent and hub.
#[test]
fn foreign_words_in_other_bodies_are_borne() {
    let mut answer = json!({ "id": "0197", "at": TIME, "components": [component()] });
    answer["components"][0]["works"] = json!("perhaps");
    let read: api::DiagnosisAnswer = serde_json::from_value(answer).unwrap();
    assert_eq!(read.components[0].works, api::Verdict::Unknown);
    let mut join = join_request();
    join["facts"]["nodes"] = json!({ "ready": 3 });
    let read: api::JoinRequest = serde_json::from_value(join).unwrap();
    assert_eq!(read.facts.len(), 1);
    let mut hub = hub_info();
    hub["trust"] = json!({ "later": 1 });
    let read: api::HubInfo = serde_json::from_value(hub).unwrap();
    assert_eq!(read.trust, None);
    let mut refusal = problem();
    refusal["now"] = json!("1");
    refusal["range"] = json!({ "min": 2, "max": 3 });
    let read: api::Problem = serde_json::from_value(refusal).unwrap();
    assert_eq!(read.more, [("now".to_owned(), "1".to_owned())].into());
    let order = json!({ "kind": "sleep", "until": { "day": 1 } });
    let read: api::Order = serde_json::from_value(order).unwrap();
    assert_eq!(read, api::Order::Unknown);
}

#[test]
fn conditions_in_words_of_a_later_agent_are_kept_as_they_were_said() {
    let later = json!({ "type": "Later", "status": "Perhaps", "reason": "R", "message": "m", "since": TIME, "x": 1 });
    let odd = json!({ "type": "Synced", "status": "Perhaps" });
    let body = json!({ "conditions": [condition(), later, 7, odd, {}] });
    let read: crate::wire::report::LaterConditions = serde_json::from_value(body.clone()).unwrap();
    let kinds: Vec<_> = read.conditions.iter().map(|c| c.kind.as_str()).collect();
    assert_eq!(kinds, ["Later", "Synced"]);
    let known: api::Report = serde_json::from_value(body).unwrap();
    assert_eq!(known.conditions.map(|c| c.len()), Some(1));
    let none: crate::wire::report::LaterConditions = serde_json::from_value(json!({})).unwrap();
    assert!(none.conditions.is_empty());
}

#[test]
fn each_sample_is_a_body_of_its_type() {
    assert!(reads_as::<api::HubInfo>("HubInfo"));
    assert!(reads_as::<api::JoinRequest>("JoinRequest"));
    assert!(reads_as::<api::Assignment>("Assignment"));
    assert!(reads_as::<api::Report>("Report"));
    assert!(reads_as::<api::ReportAck>("ReportAck"));
    assert!(reads_as::<api::DeployKeyRequest>("DeployKeyRequest"));
    assert!(reads_as::<api::DeployKeyStatus>("DeployKeyStatus"));
    assert!(reads_as::<api::Order>("Order"));
    assert!(reads_as::<api::DiagnosisAnswer>("DiagnosisAnswer"));
    assert!(reads_as::<api::Diagnosis>("Diagnosis"));
    assert!(reads_as::<api::ClusterView>("ClusterView"));
    assert!(reads_as::<api::NewCluster>("NewCluster"));
    assert!(reads_as::<api::NewJoinToken>("NewJoinToken"));
    assert!(reads_as::<api::PauseRequest>("PauseRequest"));
    assert!(reads_as::<api::LiftRequest>("LiftRequest"));
    assert!(reads_as::<api::HealCloseRequest>("HealCloseRequest"));
    assert!(reads_as::<api::LineDetail>("LineDetail"));
    assert!(reads_as::<api::AgentCopyRequest>("AgentCopyRequest"));
    assert!(reads_as::<api::AgentCopyView>("AgentCopyView"));
    assert!(reads_as::<api::AgentImageRequest>("AgentImageRequest"));
    assert!(reads_as::<api::AgentImageView>("AgentImageView"));
    assert!(reads_as::<api::LabelsRequest>("LabelsRequest"));
    assert!(reads_as::<api::LabelsView>("LabelsView"));
    assert!(reads_as::<api::GitRouteRequest>("GitRouteRequest"));
    assert!(reads_as::<api::GitRouteView>("GitRouteView"));
    assert!(reads_as::<api::EngineRequest>("EngineRequest"));
    assert!(reads_as::<api::EngineView>("EngineView"));
    assert!(reads_as::<api::RegistryRequest>("RegistryRequest"));
    assert!(reads_as::<api::RegistryView>("RegistryView"));
    assert!(reads_as::<api::Policy>("Policy"));
    assert!(reads_as::<api::AdoptionAnswer>("AdoptionAnswer"));
    assert!(reads_as::<api::HealView>("HealView"));
    assert!(reads_as::<api::AuditView>("AuditView"));
    assert!(reads_as::<api::AnchorView>("AnchorView"));
    assert!(reads_as::<api::NewGrant>("NewGrant"));
    assert!(reads_as::<api::GrantView>("GrantView"));
    assert!(reads_as::<api::GrantCheck>("GrantCheck"));
    assert!(reads_as::<api::NewUser>("NewUser"));
    assert!(reads_as::<api::UserChange>("UserChange"));
    assert!(reads_as::<api::UserView>("UserView"));
    assert!(reads_as::<api::NewApiToken>("NewApiToken"));
    assert!(reads_as::<api::ApiTokenView>("ApiTokenView"));
    assert!(reads_as::<api::ApiTokenAnswer>("ApiTokenAnswer"));
    assert!(reads_as::<api::DeviceLogin>("DeviceLogin"));
    assert!(reads_as::<api::TokenRequest>("TokenRequest"));
    assert!(reads_as::<api::SessionAnswer>("SessionAnswer"));
    assert!(reads_as::<api::LoginCode>("LoginCode"));
    assert!(reads_as::<api::EndSession>("EndSession"));
    assert!(reads_as::<api::BundleView>("BundleView"));
    assert!(reads_as::<api::WhoAmI>("WhoAmI"));
    assert!(reads_as::<api::CatalogView>("CatalogView"));
    assert!(reads_as::<api::NewSshKey>("NewSshKey"));
    assert!(reads_as::<api::SshKeyView>("SshKeyView"));
    assert!(reads_as::<api::NewSigner>("NewSigner"));
    assert!(reads_as::<api::DropSigner>("DropSigner"));
    assert!(reads_as::<api::SignersView>("SignersView"));
    assert!(reads_as::<api::GitHostView>("GitHostView"));
    assert!(reads_as::<api::AcceptHostKey>("AcceptHostKey"));
    assert!(reads_as::<api::DropHostKey>("DropHostKey"));
    assert!(reads_as::<api::RotateHostKey>("RotateHostKey"));
    assert!(reads_as::<api::UnknownAgentView>("UnknownAgentView"));
    assert!(reads_as::<api::AcceptRequest>("AcceptRequest"));
    assert!(reads_as::<api::Acceptance>("Acceptance"));
    assert!(reads_as::<api::RevokeRequest>("RevokeRequest"));
    assert!(reads_as::<api::Revocation>("Revocation"));
    assert!(reads_as::<api::Check>("Check"));
    assert!(reads_as::<api::Problem>("Problem"));
}
