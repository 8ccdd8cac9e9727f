//! Whatever breaks, it is repaired, within the budgets.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use time::Duration;

use super::*;
use crate::agent::gate::policy::{Heal, Mending};

const FLUX: [&str; 2] = ["source-controller", "kustomize-controller"];
const ARGOCD: [&str; 3] = [
    "argocd-application-controller",
    "argocd-repo-server",
    "argocd-redis",
];

fn damages() -> impl Strategy<Value = (EngineKind, Vec<Damage>)> {
    let flux = damages_of(&FLUX);
    let argocd = damages_of(&ARGOCD);
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
        1 => name.clone().prop_map(Damage::Image),
        1 => name.prop_map(Damage::Env),
        1 => any::<usize>().prop_map(Damage::Unreadable),
        1 => any::<(usize, bool)>().prop_map(|(n, foreign)| Damage::Pinned(n, foreign)),
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

    /// What the owner switches off is left as in a window of the hub's, and what he calls safe as where many clusters fail
    /// alike: no steps but the guard's, and only safe ones. Switched on again, it is repaired.
    #[test]
    fn the_owners_word_is_obeyed_whatever_is_broken((engine, damage) in damages()) {
        let mut cluster = Cluster::working_of(engine);
        for one in &damage {
            cluster.damage(one);
        }
        let owner = |heal| Some(Mending { heal, paused_until: None });
        let guarded = cluster.plan().findings.iter().any(find::dies);
        for _ in 0..20 {
            let by_hub = |cluster: &mut Cluster, safe: bool| {
                let policy = &mut cluster.install.policy;
                policy.owner = owner(Heal::On);
                policy.paused_until = (!safe).then_some(cluster.now + Duration::HOUR);
                policy.safe_until = safe.then_some(cluster.now + Duration::HOUR);
                let plan = cluster.plan();
                let policy = &mut cluster.install.policy;
                (policy.paused_until, policy.safe_until) = (None, None);
                plan
            };
            let hubs = by_hub(&mut cluster, true);
            cluster.install.policy.owner = owner(Heal::Safe);
            prop_assert_eq!(cluster.plan(), hubs);
            let hubs = by_hub(&mut cluster, false);
            cluster.install.policy.owner = owner(Heal::Off);
            let plan = cluster.round();
            prop_assert_eq!(&plan.steps, &hubs.steps);
            prop_assert!(guarded || plan.steps.is_empty(), "{:?}", plan.steps);
        }
        cluster.install.policy.owner = owner(Heal::On);
        cluster.settle(400);
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
        assert_within_budgets(&cluster);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 50, ..ProptestConfig::default() })]

    /// Somebody writes against each repair, and stops some time: until then within the budgets, and after that repaired.
    #[test]
    fn a_rival_that_stops_has_not_won((engine, damage) in damages(), times in 0_u32..6, which in any::<usize>()) {
        let mut cluster = Cluster::working_of(engine);
        let workloads: &[&str] = match engine {
            EngineKind::Flux => &FLUX,
            EngineKind::Argocd => &ARGOCD,
        };
        cluster.damage(&Damage::Rival(workloads[which % workloads.len()], times));
        for one in damage.iter().take(3) {
            cluster.damage(one);
        }
        cluster.damage(&Damage::Scale(workloads[which % workloads.len()]));
        let began = cluster.now;
        cluster.settle(2500);
        assert_within_budgets(&cluster);
        // Five times within the first hour, then once in each.
        let most = Duration::hours(2 + i64::from(times).saturating_sub(4).max(0));
        prop_assert!(cluster.now - began < most, "{} of {most}", cluster.now - began);
    }

    /// What the API server has not told, or refuses to tell, is no reason to write anything; but what dies is kept from
    /// taking others along.
    #[test]
    fn nothing_is_written_on_answers_that_are_not_whole(
        (engine, damage) in damages(), missing in prop::collection::vec((any::<usize>(), 0_u8..3), 1..4),
    ) {
        let mut cluster = Cluster::working_of(engine);
        for one in &damage {
            cluster.damage(one);
        }
        let mut observed = cluster.observed();
        let kinds: Vec<Kind> = observed.scopes.keys().copied().collect();
        for (n, how) in &missing {
            let kind = kinds[n % kinds.len()];
            let scope = observed.scopes.get_mut(&kind).unwrap();
            // What is there of that kind cannot be seen then.
            observed.objects.retain(|id, _| id.kind != kind);
            match how {
                0 => scope.answered = None,
                1 => scope.answered = Some(cluster.now - Duration::seconds(91)),
                _ => scope.answer = Answer::Refused,
            }
        }
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let untold = |kind: Kind| {
            let scope = observed.scopes[&kind];
            scope.answered.is_none_or(|at| cluster.now - at > Duration::seconds(90))
        };
        if kinds.iter().any(|kind| untold(*kind)) {
            prop_assert_eq!(plan.mode, Mode::Learning);
            let dies = plan.findings.iter().any(find::dies);
            let guards = |action: &Action| {
                matches!(
                    action,
                    Action::CutRights { .. } | Action::ScaleToZero | Action::Release
                )
            };
            let all = plan.steps.iter().all(|step| dies && guards(&step.action));
            prop_assert!(all, "{:?}", plan.steps);
        }
        for step in &plan.steps {
            let scope = observed.scopes.get(&step.target.kind);
            let refused = scope.is_some_and(|scope| scope.answer == Answer::Refused);
            // It looks at the CRD's objects itself.
            prop_assert!(!refused || step.action == Action::Release, "{step:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// W17, W20: the engine applies its commits again and again, other things break, and some of the agent's writes fail, never
    /// two in a row. All of it is held and mended within ten minutes.
    #[test]
    fn what_a_commit_breaks_is_mended_whatever_fails(
        commits in prop::collection::vec(commits(), 1..3), damage in damages_of(&FLUX),
        mask in any::<u64>(), unserved in any::<bool>(),
    ) {
        let mut cluster = Cluster::working();
        let began = cluster.now;
        // What somebody adds to what Git has is Git's to take away.
        let others = damage.iter().filter(|one| !matches!(one, Damage::Env(_)));
        for one in commits.iter().chain(others.take(2)) {
            cluster.damage(one);
        }
        cluster.fails = Fails::of(mask & !(mask << 1) & (u64::MAX >> 1), unserved);
        cluster.settle(1_200);
        prop_assert!(cluster.now - began < Duration::minutes(10), "{}", cluster.now - began);
        assert_holds_are_spaced(&cluster);
        // What is not served spends none.
        if !unserved {
            assert_within_budgets(&cluster);
        }
    }
}

fn commits() -> impl Strategy<Value = Damage> {
    let bad = prop_oneof![Just(Bad::Replicas), Just(Bad::Image), Just(Bad::Address),];
    let name = prop::sample::select(&FLUX[..]);
    (name, bad).prop_map(|(name, bad)| Damage::Commit(name, bad))
}

/// A hold that fails, and with it what it was to make ready, leaves the budget to the mend.
#[test]
fn a_commit_is_mended_within_three_minutes_where_each_other_write_fails() {
    for name in FLUX {
        for bad in [Bad::Replicas, Bad::Image] {
            for first in [0x5555_5555_5555_5555, 0xAAAA_AAAA_AAAA_AAAA] {
                let mut cluster = Cluster::working();
                let began = cluster.now;
                let id = cluster.commit(name, bad);
                cluster.fails = Fails::of(first, false);
                cluster.settle(400);
                let took = cluster.now - began;
                assert!(took < Duration::minutes(3), "{name} {bad:?}: {took}");
                let held = cluster.objects[&id].annotation(quarantine::HELD);
                assert!(held.is_some(), "{name} {bad:?}");
                assert_within_budgets(&cluster);
                assert_holds_are_spaced(&cluster);
            }
        }
    }
}

/// No object is held twice within two seconds.
fn assert_holds_are_spaced(cluster: &Cluster) {
    let mut last: BTreeMap<&ObjectId, OffsetDateTime> = BTreeMap::new();
    for (at, step) in &cluster.steps {
        if matches!(step.action, Action::Hold { .. })
            && let Some(before) = last.insert(&step.target, *at)
        {
            assert!(*at - before >= Duration::seconds(2), "{step:?}");
        }
    }
}

/// No fault of an object is acted on more often within any hour than its class may be.
fn assert_within_budgets(cluster: &Cluster) {
    let mut times: BTreeMap<&Key, BTreeSet<OffsetDateTime>> = BTreeMap::new();
    for (at, step) in &cluster.steps {
        // What a hold makes ready is done with it, or it is none.
        if let Some(key) = step.cause.as_ref().filter(|_| !step.action.prepares()) {
            times.entry(key).or_default().insert(*at);
        }
    }
    for ((class, object), times) in times {
        if let fault::Budget::PerHour(limit) = class.budget() {
            for at in &times {
                let within = times.range(*at..*at + Duration::hours(1)).count();
                assert!(within <= limit, "{class} {object}: {within} from {at}");
            }
        }
    }
}
