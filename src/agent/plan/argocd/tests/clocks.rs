//! Looks that are written down by another clock than the agent's (F12).

use serde_json::Map;

use super::*;

const SENT: &str = "2030-01-01T00:00:10.500Z";

#[test]
fn a_question_goes_with_the_look_before_it() {
    let looked = "2030-01-01T00:00:08Z";
    let [status, waits] = [json!({"reconciledAt": looked}), json!({REFRESH: "normal"})];
    for (seen, before) in [
        (Some(says(&status)), json!(looked)),
        // The look that comes next may have begun before this question.
        (Some(application(&json!({}), &waits, &status)), Value::Null),
        (Some(says(&json!({}))), json!("")),
        (None, Value::Null),
    ] {
        let expected = json!({REFRESH: "normal", PROBED_AT: SENT, PROBED_FROM: before});
        assert_eq!(question(seen.as_ref(), SENT), expected);
    }
}

/// W43: what it met in a signature it goes on saying of a commit, also when the key has come since.
#[test]
fn one_that_refuses_a_signature_is_asked_to_verify_anew() {
    let refusal = "Target revision abc in Git is not signed, but a signature is required";
    for (message, how) in [(refusal, "hard"), ("app path does not exist", "normal")] {
        let conditions = json!([{"type": "ComparisonError", "message": message}]);
        let seen = says(&json!({ "conditions": conditions }));
        assert_eq!(question(Some(&seen), SENT)[REFRESH], how, "{message}");
        let trouble = Some(("ComparisonError".to_owned(), message.to_owned()));
        let child = Child {
            trouble,
            ..Child::default()
        };
        assert_eq!(look(is_unsigned(&child)), how, "{message}");
    }
}

/// By a clock that is behind a look from after the question is one from before it; that there was one is known all the same.
#[test]
fn another_look_than_the_one_before_the_question_answers_it() {
    let [before, after] = ["2030-01-01T00:00:02Z", "2030-01-01T00:00:07Z"];
    let that_second = "2030-01-01T00:00:10Z";
    for (from, refresh, reconciled, answered) in [
        (Some(before), None, after, true),
        // It had not looked yet.
        (Some(""), None, after, true),
        (Some(after), None, after, false),
        // An agent of before does not say.
        (None, None, after, false),
        (Some(before), Some("normal"), after, false),
        (Some(before), None, "", false),
        // Two looks in one second.
        (Some(that_second), None, that_second, true),
    ] {
        let all = [
            (PROBED_AT, Some(SENT)),
            (PROBED_FROM, from),
            (REFRESH, refresh),
        ];
        let there = all
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
        let annotations: Map<String, Value> = there.collect();
        let status = json!({"reconciledAt": reconciled});
        let live = application(&json!({}), &json!(annotations), &status);
        let sent = at(SENT);
        let text = format!("{from:?} {refresh:?} {reconciled}");
        assert_eq!(live.probe(), Some(Probe { sent, answered }), "{text}");
    }
}

/// What may have begun before it has to have been taken, and to be of an agent that kept no look with its questions.
#[test]
fn only_an_unanswered_question_that_was_taken_is_lost() {
    let [before, after] = ["2030-01-01T00:00:02Z", "2031-01-01T00:00:00Z"];
    let lost = |annotations: Value, looked: &str| {
        let status = json!({"reconciledAt": looked});
        lost_question(&application(&json!({}), &annotations, &status))
    };
    let asked = json!({PROBED_AT: SENT});
    let waits = json!({PROBED_AT: SENT, REFRESH: "normal"});
    let kept = json!({PROBED_AT: SENT, PROBED_FROM: before});
    for (annotations, looked, expected) in [
        (asked.clone(), before, true),
        (asked, after, false),
        (waits, before, false),
        (kept, before, false),
        (json!({}), before, false),
    ] {
        assert_eq!(
            lost(annotations.clone(), looked),
            expected,
            "{annotations} {looked}"
        );
    }
}
