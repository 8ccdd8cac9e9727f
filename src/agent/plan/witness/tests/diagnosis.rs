//! What a diagnosis says of the controllers that are asked with others' objects.

use super::*;
use crate::agent::plan::diagnosis::{Moment, components};
use crate::wire::api::{Component, Verdict};

/// F12: what a diagnosis says of each of them: whether there is one to ask, and what became of the last question.
#[test]
#[expect(clippy::too_many_lines, reason = "a row for each case")]
fn a_diagnosis_has_a_row_for_each_controller_that_is_asked_with_others_objects() {
    let cluster = working(&all());
    let now = cluster.now;
    let sent = |ago: i32| rfc3339(now - SECOND * ago);
    let rows = |witnesses: Vec<(ObjectId, Witness)>| {
        let mut observed = cluster.observed();
        observed.witnesses = witnesses.into_iter().collect();
        let plan = plan(now, &cluster.install, &observed, &cluster.history);
        let rows = components(&Moment {
            now,
            install: &cluster.install,
            observed: &observed,
            history: &cluster.history,
            plan: &plan,
            snapshot: None,
        });
        let of = rows
            .into_iter()
            .filter(|row| row.name.contains(" asked with ") || row.name.contains("apps/"));
        of.collect::<Vec<Component>>()
    };
    let row = |kind: Kind, verdicts: [Verdict; 3], found: &str, fix: &str| {
        let (_, name) = WITNESSES.iter().find(|(of, _)| *of == kind).unwrap();
        let [exists, works, fresh] = verdicts;
        Component {
            name: format!("{name} asked with {kind}"),
            exists,
            works,
            fresh,
            found: found.to_owned(),
            fix: fix.to_owned(),
        }
    };
    let (yes, no, none, unknown) = (Verdict::Yes, Verdict::No, Verdict::None, Verdict::Unknown);
    let unasked = |kind: Kind| {
        let text = format!("there is no {kind} to ask it with: its Pod is all that is known of it");
        row(kind, [none; 3], &text, "")
    };
    let others = [Kind::ImageRepository, Kind::ImageUpdateAutomation].map(unasked);
    let mended = "it is being mended; see: linesman heal list eu1";
    let unfit = Witness::default();
    let fit = Witness { fit: true, ..unfit };
    let rarely = "none of 1 may be asked: suspended, or looked at more seldom than every 10 min";
    for (witness, verdicts, found, fix) in [
        (unfit, [none; 3], rarely.to_owned(), ""),
        (
            fit,
            [yes, yes, unknown],
            "Receiver apps/a was not asked yet".to_owned(),
            "",
        ),
        (
            asked(now, SECOND * 60, true),
            [yes; 3],
            format!("Receiver apps/a answered the question of {}", sent(60)),
            "",
        ),
        (
            asked(now, SECOND * 689, true),
            [yes; 3],
            format!("Receiver apps/a answered the question of {}", sent(689)),
            "",
        ),
        // Twice the time between two questions, and that for an answer.
        (
            asked(now, SECOND * 690, true),
            [yes, yes, no],
            format!("Receiver apps/a answered the question of {}", sent(690)),
            mended,
        ),
        (
            asked(now, SECOND * 89, false),
            [yes, yes, unknown],
            format!(
                "Receiver apps/a has not answered the question of {}",
                sent(89)
            ),
            "",
        ),
        (
            asked(now, SECOND * 90, false),
            [yes, yes, no],
            format!(
                "Receiver apps/a has not answered the question of {}",
                sent(90)
            ),
            mended,
        ),
    ] {
        let receiver = row(Kind::Receiver, verdicts, &found, fix);
        let expected: Vec<Component> = [receiver].into_iter().chain(others.clone()).collect();
        assert_eq!(
            rows(vec![(id(Kind::Receiver, "a"), witness)]),
            expected,
            "{witness:?}"
        );
    }
    let wedged = rows(vec![(
        id(Kind::Receiver, "a"),
        asked(now, SECOND * 91, false),
    )]);
    let [first, ..] = &wedged[..] else {
        panic!("{wedged:?}")
    };
    assert_eq!((first.exists, first.works, first.fresh), (yes, no, no));
    assert!(first.found.starts_with("F12 QueueWedged: "), "{first:?}");
    assert_eq!(wedged.len(), 3, "it is told once: {wedged:?}");
}

/// What else is wrong with the object that one is asked with, and who else does not answer, is told in rows of their own.
#[test]
fn only_the_silence_of_its_own_controller_is_told_in_a_row() {
    let cluster = working(&all());
    let now = cluster.now;
    let [receiver, elsewhere] =
        [(Kind::Receiver, "a"), (Kind::Deployment, "b")].map(|(kind, name)| id(kind, name));
    let findings = vec![
        Finding::new(Class::ApplyFailed, &receiver, "x"),
        Finding::new(Class::QueueWedged, &elsewhere, "y"),
    ];
    let mut history = cluster.history.clone();
    for finding in &findings {
        let key = (finding.class, finding.object.clone());
        let past = history.faults.entry(key).or_default();
        past.since = Some(now - finding.class.debounce());
    }
    let mut observed = cluster.observed();
    let answered = asked(now, SECOND * 60, true);
    observed.witnesses.insert(receiver, answered);
    let plan = Plan {
        findings,
        ..cluster.plan()
    };
    let rows = components(&Moment {
        now,
        install: &cluster.install,
        observed: &observed,
        history: &history,
        plan: &plan,
        snapshot: None,
    });
    let of = |row: &&Component| row.name.contains("Receiver") || row.name.contains("apps/");
    let told = rows.iter().filter(of);
    let told: Vec<(&str, Verdict, &str)> = told
        .map(|row| (row.name.as_str(), row.works, row.found.as_str()))
        .collect();
    let sent = rfc3339(now - SECOND * 60);
    let text = format!("Receiver apps/a answered the question of {sent}");
    assert_eq!(
        told,
        [
            (
                "notification-controller asked with Receiver",
                Verdict::Yes,
                text.as_str()
            ),
            ("Receiver apps/a", Verdict::No, "F39 ApplyFailed: x"),
            ("Deployment apps/b", Verdict::No, "F12 QueueWedged: y"),
        ]
    );
}

#[test]
fn a_diagnosis_says_of_a_controller_that_is_down_why_it_is_not_asked() {
    let mut cluster = working(&all());
    let (kind, name) = WITNESSES[0];
    let controller = ObjectId::new(Kind::Deployment, "flux-system", name);
    cluster.objects.get_mut(&controller).unwrap().fields["status"]["availableReplicas"] = json!(0);
    let mut observed = cluster.observed();
    let fit = asked(cluster.now, SECOND, true);
    observed.witnesses.insert(id(kind, "a"), fit);
    let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
    let rows = components(&Moment {
        now: cluster.now,
        install: &cluster.install,
        observed: &observed,
        history: &cluster.history,
        plan: &plan,
        snapshot: None,
    });
    let name = format!("{name} asked with {kind}");
    let row = rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!(
        row.found,
        format!("not asked while {controller} is not available")
    );
    assert!(row.ok(), "the controller has a row of its own");
}
