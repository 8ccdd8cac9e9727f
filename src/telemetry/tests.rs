use super::*;

mod alerts;

#[test]
fn the_clients_word_of_errors_is_heard_where_it_is_asked_for() {
    let directives = |asked: &str| -> Vec<String> {
        let filter = filter_of(asked).unwrap().to_string();
        let mut all: Vec<String> = filter.split(',').map(str::to_owned).collect();
        all.sort();
        all
    };
    assert_eq!(directives("info"), ["info", QUIET, QUIET_TLS, QUIET_SQL]);
    let named = "kube_client::client::builder=debug";
    assert_eq!(directives(named), [named, QUIET_TLS, QUIET_SQL]);
    let named = "rustls_platform_verifier=debug";
    assert_eq!(directives(named), [QUIET, named, QUIET_SQL]);
}

/// An alert by `increase` did not see the first of them.
#[test]
fn what_alerts_count_is_there_before_the_first_time() {
    let metrics = HubMetrics::begun();
    metrics.notices_begin("slack");
    let text = metrics.text(&Lines::default()).unwrap();
    for series in [
        "refusals_total{rule=\"Connections\"}",
        "heals_refused_total{reason=\"id\"}",
        "heals_refused_total{reason=\"ahead\"}",
        "heals_refused_total{reason=\"class\"}",
        "heals_refused_total{reason=\"room\"}",
        "notices_total{sink=\"slack\",outcome=\"dropped\"}",
        "notices_total{sink=\"slack\",outcome=\"failed\"}",
        "notices_total{sink=\"slack\",outcome=\"delivered\"}",
    ] {
        let line = format!("linesman_hub_{series} 0\n");
        assert!(text.contains(&line), "{series} in {text}");
    }
}

/// One that came while they were counted anew saw no cluster.
#[test]
fn a_scrape_has_all_phases_of_one_count() {
    let count = |phase: &str, clusters| (phase.to_owned(), clusters);
    let shown = |registry: &Registry| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("clusters{"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let scrape = |metrics: &HubMetrics| {
        let mut registry = Registry::default();
        registry.register("clusters", "Clusters by phase", metrics.phases());
        registry
    };
    let metrics = HubMetrics::default();
    metrics.fleet(&[count("Broken", 1), count("Healthy", 2)]);
    let before = scrape(&metrics);
    metrics.fleet(&[count("Healthy", 3)]);
    let all = [
        "clusters{phase=\"Broken\"} 1",
        "clusters{phase=\"Healthy\"} 2",
    ];
    assert_eq!(shown(&before), all);
    assert_eq!(shown(&scrape(&metrics)), ["clusters{phase=\"Healthy\"} 3"]);
}

#[test]
fn a_misspelt_level_is_refused() {
    for (asked, strange) in [
        ("debugg", "debugg"),
        ("info,debugg", "debugg"),
        ("hyper", "hyper"),
        ("linesman::agent=debugg", "linesman::agent=debugg"),
        ("no such = filter", "no such = filter"),
    ] {
        let refused = filter_of(asked).map(|filter| filter.to_string());
        assert_eq!(refused, Err(NoFilter(strange.to_owned())), "{asked}");
    }
    for asked in ["", "WARN", "info,linesman::hub=debug", "linesman::hub"] {
        assert!(filter_of(asked).is_ok(), "{asked}");
    }
}

#[test]
fn what_an_error_ends_with_is_not_said_again_as_its_cause() {
    #[derive(Debug, thiserror::Error)]
    #[error("read it: {0}")]
    struct Twice(#[source] std::fmt::Error);
    #[derive(Debug, thiserror::Error)]
    #[error("begin")]
    struct Begin(#[source] Twice);
    let cause = std::fmt::Error;
    let expected = format!("begin: read it: {cause}");
    assert_eq!(chain_of(&Begin(Twice(cause))), expected);
    let any = anyhow::Error::new(Begin(Twice(cause)));
    assert_eq!(chain_of_any(&any), expected);
}
