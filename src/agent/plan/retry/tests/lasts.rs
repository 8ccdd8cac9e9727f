//! How long what a root said last stands while it tries again.

use super::*;

#[test]
fn what_a_root_said_is_over_when_it_says_something_else_or_tries_for_long() {
    for (status, reason, later, expected) in [
        ("True", "ReconciliationSucceeded", 1_000, None),
        (
            "False",
            "HealthCheckFailed",
            1_000,
            Some(Class::HealthCheckFailed),
        ),
        ("Unknown", "Progressing", 59_999, Some(Class::BuildFailed)),
        ("Unknown", "Progressing", 60_000, None),
    ] {
        let mut cluster = Cluster::working();
        says(&mut cluster, "False", "BuildFailed");
        found(&mut cluster, 0);
        says(&mut cluster, status, reason);
        found(&mut cluster, 30_000);
        let classes = found(&mut cluster, later).into_iter().map(|f| f.0);
        assert_eq!(
            classes.collect::<Vec<_>>(),
            Vec::from_iter(expected),
            "{status} {later}"
        );
    }
}

/// A clock that is set ahead ends no try.
#[test]
fn a_try_is_as_long_as_it_is_whatever_the_clock_says() {
    let mut cluster = Cluster::working();
    let fault = vec![(Class::BuildFailed, "BuildFailed: its words".to_owned())];
    says(&mut cluster, "False", "BuildFailed");
    found(&mut cluster, 0);
    says(&mut cluster, "Unknown", "Progressing");
    assert_eq!(found(&mut cluster, 1_000), fault);
    cluster.history.set_by(Duration::hours(1));
    assert_eq!(found(&mut cluster, 3_600_000 + 59_999), fault);
    assert_eq!(found(&mut cluster, 1), []);
}

/// F38, F39, F40: from when a try is seen to begin to when what was found before is over, while nothing else is said.
#[test]
fn a_fault_is_over_when_a_try_has_come_further_or_takes_too_long() {
    // Two timeouts of 5 min, and half a minute.
    let whole = 630_000;
    for (reason, words, lasts) in [
        ("HealthCheckFailed", "Fetching manifests", whole),
        ("HealthCheckFailed", "Detecting drift", whole),
        ("HealthCheckFailed", "Running health checks", whole),
        ("HealthCheckFailed", "Other words", whole),
        ("HealthCheckCanceled", "Running health checks", 50_000),
        ("ReconciliationFailed", "Building manifests", whole),
        ("ReconciliationFailed", "Detecting drift", whole),
        ("ReconciliationFailed", "Running health checks", 0),
        ("PruneFailed", "Running health checks", 0),
        ("BuildFailed", "Fetching manifests", whole),
        ("BuildFailed", "Building manifests", whole),
        ("BuildFailed", "Detecting drift", 0),
        ("BuildFailed", "Other words", 60_000),
        ("DependencyNotReady", "Fetching manifests", 0),
    ] {
        let case = format!("{reason}, {words}");
        let mut cluster = Cluster::working();
        says(&mut cluster, "False", reason);
        let fault = found(&mut cluster, 0);
        assert_eq!(fault.len(), 1, "{case}");
        tries_at(&mut cluster, words);
        let first = found(&mut cluster, 1_000);
        if lasts == 0 {
            assert_eq!(first, [], "{case}");
            continue;
        }
        assert_eq!(first, fault, "{case}");
        assert_eq!(found(&mut cluster, lasts - 1), fault, "{case}");
        assert_eq!(found(&mut cluster, 1), [], "{case}");
    }
}

#[test]
fn a_try_of_a_root_whose_times_cannot_be_read_lasts_a_minute() {
    let mut cluster = Cluster::working();
    says(&mut cluster, "False", "HealthCheckFailed");
    found(&mut cluster, 0);
    tries_at(&mut cluster, "Running health checks");
    let root = cluster.install.sync.clone();
    let live = cluster.objects.get_mut(&root).unwrap();
    live.fields["spec"]["timeout"] = json!("soon");
    live.fields["spec"]["interval"] = json!("soon");
    let fails = |later| {
        let all = found(&mut cluster, later);
        all.iter().any(|f| f.0 == Class::HealthCheckFailed)
    };
    assert_eq!([0, 59_999, 1].map(fails), [true, true, false]);
}

/// F40: a question of the agent's own, too, cancels a check under way. Whatever becomes healthy a minute later was never at fault.
#[test]
fn a_check_that_was_canceled_once_is_over_before_it_counts() {
    let mut cluster = Cluster::working();
    says(&mut cluster, "False", "HealthCheckCanceled");
    let fault = found(&mut cluster, 0);
    assert_eq!(fault.len(), 1);
    tries_at(&mut cluster, "Running health checks");
    assert_eq!(found(&mut cluster, 2_000), fault);
    let counts = Class::HealthCheckFailed.debounce() - Duration::seconds(2);
    let counts = counts.whole_seconds() * 1_000;
    assert_eq!(found(&mut cluster, counts), []);
}

/// Where the end of the one before was not seen, too: it is there for milliseconds.
#[test]
fn another_try_has_all_of_its_time() {
    let mut cluster = Cluster::working();
    says(&mut cluster, "False", "HealthCheckFailed");
    let fault = found(&mut cluster, 0);
    tries_at(&mut cluster, "Running health checks");
    began(&mut cluster, "2027-01-15T08:00:00Z");
    assert_eq!(found(&mut cluster, 1_000), fault);
    assert_eq!(found(&mut cluster, 629_000), fault);
    began(&mut cluster, "2027-01-15T08:10:00Z");
    assert_eq!(found(&mut cluster, 1_000), fault);
    assert_eq!(found(&mut cluster, 629_999), fault);
    assert_eq!(found(&mut cluster, 1), []);
}
