//! Applications whose operation fails and is tried again.

use super::*;

/// The state of an Application's operation, which has an end or none.
fn operation(phase: &str, is_over: bool, message: &str) -> Value {
    let sync = if phase == "Succeeded" {
        "Synced"
    } else {
        "OutOfSync"
    };
    let end = if is_over { "2030-01-01T00:00:10Z" } else { "" };
    json!({"/status": {
        "sync": {"status": sync}, "health": {"status": "Missing"},
        "operationState": {"phase": phase, "finishedAt": end, "message": message},
    }})
}

fn fails(message: &str) -> Value {
    let message = format!("{message}. Retrying attempt #1 at 12:00AM.");
    operation("Running", true, &message)
}

/// F39: with no limit to its tries it never says anything else.
#[test]
fn what_an_application_said_of_a_failed_try_stands_while_it_tries_again() {
    let works = |message: &str| operation("Running", false, message);
    let unknown = json!({"/status": {
        "sync": {"status": "Unknown"}, "operationState": {"phase": "Running"},
        "conditions": [{"type": "ComparisonError", "message": "no such path"}],
    }});
    let (denied, late) = (Some(("SyncError", "denied")), Some(("SyncError", "late")));
    let begins = works("Retrying operation. Attempt #2");
    let further = works("waiting for healthy state of apps/Deployment/web");
    let other = Some(("ComparisonError", "no such path"));
    let mut seen = Observed::default();
    for (what, change, expected) in [
        ("its first try says nothing", works(""), None),
        ("it failed", fails("denied"), denied),
        ("it tries again", works(""), denied),
        ("it failed otherwise", fails("late"), late),
        ("it tries for the last time", works(""), late),
        ("it says something else", unknown, other),
        ("it is at the next commit", works(""), None),
        ("which fails", fails("denied"), denied),
        ("it says that it begins", begins, denied),
        ("it says what the try before said", works("denied"), denied),
        ("it has come further", further, None),
        ("it is over", operation("Failed", true, "denied"), denied),
        ("it is done", operation("Succeeded", true, ""), None),
    ] {
        let (id, live) = saying(Kind::Application, &change);
        heard(&mut seen, id.clone(), Heard::of(HOME, id.kind, &live));
        assert_eq!(trouble(&seen, &id), expected, "{what}");
    }
}

fn trouble<'a>(seen: &'a Observed, id: &ObjectId) -> Option<(&'a str, &'a str)> {
    let (reason, message) = seen.children.get(id)?.trouble.as_ref()?;
    Some((reason, message))
}

/// F39: between its failures, however many others there are.
#[test]
fn what_fails_and_tries_again_stays_known() {
    let tries = || operation("Running", false, "");
    let mut seen = Observed::default();
    for (what, change, listed) in [
        ("it fails", fails("denied"), true),
        ("it tries", tries(), true),
        ("it fails again", fails("denied"), false),
        ("it tries again", tries(), false),
    ] {
        let (id, live) = saying(Kind::Application, &change);
        let said = Heard::of(HOME, id.kind, &live);
        if listed {
            let list = many(id.clone(), said);
            list.put(&mut seen, id.kind, &Newer::default());
        } else {
            heard(&mut seen, id.clone(), said);
        }
        let told = trouble(&seen, &id);
        assert_eq!(told, Some(("SyncError", "denied")), "{what}");
    }
}
