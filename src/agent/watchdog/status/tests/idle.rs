//! Why nothing is mended: somebody has said so, or the API server does not answer.

use super::*;
use crate::agent::gate::policy::{Heal, Mending};
use crate::wire::report::hub_window;

/// Whoever asks why nothing is mended finds who said so, and where.
#[test]
fn what_holds_the_agent_back_is_told_with_whose_word_it_is() {
    let mut install = plan::tests::install();
    let observed = working(&install);
    let stands = |reason: &str, text: &str| (Status::True, reason.to_owned(), text.to_owned());
    let acts = (Status::False, "Acts".to_owned(), String::new());
    let mends = (Status::False, "MendsAll".to_owned(), String::new());
    let end = rfc3339(at(600));
    let owner = |heal, paused_until| Mending { heal, paused_until };
    for (hub, owner, paused, safe) in [
        (None, owner(Heal::On, None), acts.clone(), mends.clone()),
        (
            Some(at(600)),
            owner(Heal::On, Some(at(300))),
            stands(
                "Maintenance",
                &format!("until {end}: nodes; end it: linesman cluster resume eu1"),
            ),
            mends.clone(),
        ),
        (
            Some(at(300)),
            owner(Heal::On, Some(at(600))),
            stands(
                "Maintenance",
                &format!(
                    "until {end}; key pausedUntil of ConfigMap linesman-policy; ask the cluster's owner to take it away"
                ),
            ),
            mends.clone(),
        ),
        (
            Some(at(300)),
            owner(Heal::Off, None),
            stands(
                "HealOff",
                "key heal of ConfigMap linesman-policy is off; ask the cluster's owner to set it to on",
            ),
            mends.clone(),
        ),
        (
            None,
            owner(Heal::Safe, None),
            acts.clone(),
            stands(
                "HealSafe",
                "key heal of ConfigMap linesman-policy is safe; ask the cluster's owner to set it to on",
            ),
        ),
        (
            None,
            owner(Heal::Unclear, None),
            stands(
                "PolicyInvalid",
                "ConfigMap linesman-policy, which is not valid; ask the cluster's owner to mend it: condition \
                 PolicyAccepted says what is wrong",
            ),
            mends.clone(),
        ),
    ] {
        install.policy.paused_until = hub;
        "nodes".clone_into(&mut install.policy.pause_reason);
        install.policy.owner = Some(owner);
        let told = told(&install, &observed);
        let said = (told["Paused"].clone(), told["SafeHealsOnly"].clone());
        // 'cluster pause --wait' knows it by that.
        let hubs = hub.is_some_and(|end| said.0.2.starts_with(&hub_window(&rfc3339(end))));
        assert_eq!(hubs, said.0.2.contains("linesman cluster resume"));
        assert_eq!(said, (paused, safe), "{hub:?} {owner:?}");
    }
}

/// F14: what is not known is not judged; that it is not known is told.
#[test]
fn an_api_server_that_does_not_answer_is_told_and_nothing_else() {
    let install = plan::tests::install();
    let observed = Observed {
        since: Some(at(-100)),
        ..Observed::default()
    };
    let mut history = History::default();
    let first = plan::plan(at(0), &install, &observed, &history);
    history.saw(at(0), &first);
    let blind = |now| {
        let plan = plan::plan(now, &install, &observed, &history);
        assert_eq!(plan.mode, Mode::Learning);
        let moment = Moment {
            now,
            install: &install,
            observed: &observed,
            history: &history,
            plan: &plan,
            lacks: None,
        };
        let all = blind(&moment).into_iter();
        all.map(|c| (c.kind, c.status, c.reason, c.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(blind(at(29)), [], "it may be a moment");
    let text = "Namespace flux-system the API server has not answered since 2027-01-15T07:58:20.000Z, asked for \
                namespaces; mend the cluster's API server, or give the agent its right back \
                (condition RightsLost); nothing is healed until it answers";
    assert_eq!(
        blind(at(30)),
        [(
            ConditionType::EngineHealthy,
            Status::False,
            "ApiUnhealthy".to_owned(),
            text.to_owned()
        )]
    );
}
