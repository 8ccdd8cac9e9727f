//! What is read of an object that may be asked.

use super::*;

fn live(kind: Kind, spec: &Value, status: &Value, asked: Option<&str>) -> DynamicObject {
    let annotations = asked.map(|asked| json!({REQUESTED_AT: asked}));
    let live = json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(),
        "metadata": {"name": "one", "namespace": "apps", "annotations": annotations},
        "spec": spec, "status": status,
    });
    serde_json::from_value(live).unwrap()
}

/// To ask is to have it looked at now: nothing is scanned or pushed that would not be within minutes.
#[test]
fn only_what_is_looked_at_often_or_does_nothing_may_be_asked() {
    let every = |every: &str| json!({"interval": every});
    let paused = json!({"interval": "24h", "suspend": true});
    let paused_often = json!({"interval": "5m", "suspend": true});
    for (kind, spec, fit) in [
        (Kind::Receiver, every("24h"), true),
        (Kind::Receiver, json!({}), true),
        (Kind::ImageRepository, every("10m"), true),
        (Kind::ImageRepository, every("10m1s"), false),
        (Kind::ImageRepository, json!({}), false),
        (Kind::ImageRepository, paused.clone(), true),
        (Kind::ImageUpdateAutomation, every("5m"), true),
        (Kind::ImageUpdateAutomation, every("1h"), false),
        (Kind::ImageUpdateAutomation, paused, false),
        (Kind::ImageUpdateAutomation, paused_often, false),
    ] {
        let said = Witness::of(kind, &live(kind, &spec, &json!({}), None));
        assert_eq!(said.fit, fit, "{kind} {spec}");
        let mut going = live(kind, &spec, &json!({}), None);
        going.metadata.deletion_timestamp =
            serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
        assert!(!Witness::of(kind, &going).fit);
    }
}

/// F18: the API server takes them, and Go does not.
#[test]
fn a_duration_that_go_cannot_hold_is_named() {
    let kind = Kind::ImageRepository;
    for (spec, blinds) in [
        (json!({"interval": "99999999999999h"}), Some("/interval")),
        (
            json!({"interval": "5m", "timeout": "99999999999999h"}),
            Some("/timeout"),
        ),
        (json!({"interval": "5m"}), None),
        (json!({}), None),
    ] {
        let said = Witness::of(kind, &live(kind, &spec, &json!({}), None));
        assert_eq!(said.blinds, blinds, "{spec}");
        let other = Witness {
            blinds: None,
            ..said
        };
        assert_eq!(said.asks_otherwise(&other), blinds.is_some(), "{spec}");
    }
}

/// Nothing else keeps a worker for longer than a moment.
#[test]
fn only_a_scan_takes_its_time() {
    let minutes = Duration::minutes;
    for (kind, suspend, takes) in [
        (Kind::ImageRepository, false, minutes(5)),
        (Kind::ImageRepository, true, minutes(0)),
        (Kind::ImageUpdateAutomation, false, minutes(0)),
        (Kind::Receiver, false, minutes(0)),
    ] {
        let spec = json!({"interval": "5m", "suspend": suspend});
        let said = Witness::of(kind, &live(kind, &spec, &json!({}), None));
        assert_eq!(said.takes, takes, "{kind} {suspend}");
    }
}

#[test]
fn what_one_says_of_its_answer_and_of_its_controllers_work_is_read() {
    let (kind, at) = (Kind::ImageRepository, "2027-01-15T08:00:00Z");
    let time = parse_rfc3339(at);
    let scan = json!({"lastScanResult": {"scanTime": at}});
    for (spec, status, asked, expected) in [
        (json!({}), json!({}), None, Witness::default()),
        (
            json!({"interval": "5m"}),
            scan,
            Some(at),
            Witness {
                fit: true,
                probe: time.map(|sent| Probe {
                    sent,
                    answered: false,
                }),
                served: time,
                takes: Duration::minutes(5),
                ..Witness::default()
            },
        ),
        (
            json!({"interval": "5m", "timeout": "30s"}),
            json!({"lastHandledReconcileAt": at, "lastAutomationRunTime": at}),
            Some(at),
            Witness {
                fit: true,
                probe: time.map(|sent| Probe {
                    sent,
                    answered: true,
                }),
                served: time,
                takes: SECOND * 30,
                ..Witness::default()
            },
        ),
        (json!({}), json!({}), Some("soon"), Witness::default()),
    ] {
        assert_eq!(
            Witness::of(kind, &live(kind, &spec, &status, asked)),
            expected
        );
    }
    let told = Witness {
        served: time,
        ..Witness::default()
    };
    assert!(!told.asks_otherwise(&Witness::default()));
    let fit = Witness { fit: true, ..told };
    assert!(fit.asks_otherwise(&told));
}
