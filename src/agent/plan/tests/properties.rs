//! Whatever breaks, it is repaired, within the budgets.

use proptest::prelude::*;
use time::Duration;

use super::*;

fn damages() -> impl Strategy<Value = (EngineKind, Vec<Damage>)> {
    let flux = damages_of(&["source-controller", "kustomize-controller"]);
    let argocd = damages_of(&[
        "argocd-application-controller",
        "argocd-repo-server",
        "argocd-redis",
    ]);
    prop_oneof![
        flux.prop_map(|all| (EngineKind::Flux, all)),
        argocd.prop_map(|all| (EngineKind::Argocd, all)),
    ]
}

fn damages_of(names: &'static [&'static str]) -> impl Strategy<Value = Vec<Damage>> {
    let name = prop::sample::select(names);
    let one = prop_oneof![
        4 => any::<usize>().prop_map(Damage::Delete),
        2 => any::<usize>().prop_map(Damage::Field),
        1 => name.clone().prop_map(Damage::Scale),
        1 => name.prop_map(Damage::Image),
        1 => any::<usize>().prop_map(Damage::Unreadable),
    ];
    prop::collection::vec(one, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_damage_is_repaired((engine, damage) in damages()) {
        let mut cluster = Cluster::working_of(engine);
        let began = cluster.now;
        for one in &damage {
            cluster.damage(one);
        }
        cluster.settle(400);
        prop_assert!(cluster.now - began < Duration::minutes(10), "{}", cluster.now - began);
    }

    #[test]
    fn budgets_hold_whatever_keeps_breaking((engine, damage) in damages(), again in 1_usize..5) {
        let mut cluster = Cluster::working_of(engine);
        for round in 0..200 {
            if round % again == 0 && !cluster.objects.is_empty() {
                cluster.damage(&damage[round % damage.len()]);
            }
            cluster.round();
        }
        for (at, step) in &cluster.steps {
            let Some((class, object)) = &step.cause else { continue };
            if let fault::Budget::PerHour(limit) = class.budget() {
                let times: std::collections::BTreeSet<OffsetDateTime> = cluster.steps.iter()
                    .filter(|(t, s)| s.cause.as_ref() == Some(&(*class, object.clone())) && *at - *t < Duration::hours(1) && t <= at)
                    .map(|(t, _)| *t)
                    .collect();
                prop_assert!(times.len() <= limit, "{class} {object}: {}", times.len());
            }
        }
    }
}
