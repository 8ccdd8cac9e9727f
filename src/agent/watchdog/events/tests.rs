use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use kube::runtime::events::EventType;
use serde_json::{Value, json};

use super::*;

fn named(name: &str) -> ObjectReference {
    ObjectReference {
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

fn posting(n: usize, about: Option<&str>) -> Posting {
    Posting {
        event: Event {
            type_: EventType::Normal,
            reason: n.to_string(),
            note: None,
            action: String::new(),
            secondary: None,
        },
        about: about.map(named),
        instead: named("agent"),
    }
}

/// Takes none about what is bad.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<(String, String)>>>);

impl Writes for Written {
    async fn write(&mut self, event: &Event, about: &ObjectReference) -> bool {
        let name = about.name.clone().unwrap();
        let good = name != "bad";
        self.0.lock().unwrap().push((event.reason.clone(), name));
        good
    }
}

#[tokio::test]
async fn an_event_that_cannot_be_about_its_object_is_about_the_agent() {
    let (queue, waiting) = mpsc::channel(8);
    for (n, about) in [Some("good"), Some("bad"), None].into_iter().enumerate() {
        queue.try_send(posting(n, about)).unwrap();
    }
    drop(queue);
    let written = Written::default();
    write_all(waiting, written.clone()).await;
    let expected = [("0", "good"), ("1", "bad"), ("1", "agent"), ("2", "agent")];
    let expected = expected.map(|(n, name)| (n.to_owned(), name.to_owned()));
    assert_eq!(*written.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn nobody_waits_for_events_that_nobody_takes() {
    let (queue, mut waiting) = mpsc::channel(MAX_WAITING);
    let outbox = Outbox {
        queue,
        _writer: JoinSet::new(),
    };
    for n in 0..MAX_WAITING + 10 {
        outbox.put(posting(n, None));
    }
    let mut kept = Vec::new();
    while let Ok(posting) = waiting.try_recv() {
        kept.push(posting.event.reason.parse::<usize>().unwrap());
    }
    assert_eq!(kept, (0..MAX_WAITING).collect::<Vec<_>>());
}

/// What came to an API server: how, the note, and how often that was so far.
type Taken = Arc<Mutex<Vec<(Method, Value, Value)>>>;

/// An API server that takes every Event.
fn taking() -> (Client, Taken) {
    let taken = Taken::default();
    let seen = Arc::clone(&taken);
    let server = tower::service_fn(move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            let event: Value = serde_json::from_slice(&bytes).unwrap();
            let count = event["series"]["count"].clone();
            let came = (head.method, event["note"].clone(), count);
            seen.lock().unwrap().push(came);
            Ok::<_, Infallible>(Response::new(Body::from(bytes.to_vec())))
        }
    });
    (Client::new(server, "linesman"), taken)
}

fn said(note: &str) -> Event {
    Event {
        type_: EventType::Warning,
        reason: "RecordUnreadable".to_owned(),
        note: Some(note.to_owned()),
        action: "Told".to_owned(),
        secondary: None,
    }
}

/// W46: Events that differ in their notes alone are not one that comes again; one that does is counted.
#[tokio::test]
async fn each_note_is_an_event_of_its_own() {
    let (kube, taken) = taking();
    let mut notes = Notes::new(kube, "linesman-agent-0".to_owned());
    for note in ["a snapshot", "open heals", "a snapshot"] {
        assert!(notes.write(&said(note), &named("agent")).await);
    }
    let expected = [
        (Method::POST, json!("a snapshot"), Value::Null),
        (Method::POST, json!("open heals"), Value::Null),
        (Method::PATCH, json!("a snapshot"), json!(2)),
    ];
    assert_eq!(*taken.lock().unwrap(), expected);
}

#[tokio::test]
async fn no_more_notes_are_known_than_the_last_ones() {
    let (kube, taken) = taking();
    let mut notes = Notes::new(kube, "linesman-agent-0".to_owned());
    let many: Vec<String> = (0..=NOTES).map(|n| n.to_string()).collect();
    for note in many.iter().chain(&many[..2]) {
        assert!(notes.write(&said(note), &named("agent")).await);
    }
    assert_eq!(notes.recorders.len(), NOTES);
    let taken = taken.lock().unwrap();
    let anew = taken.iter().filter(|(how, ..)| *how == Method::POST);
    assert_eq!(anew.count(), NOTES + 3, "the oldest were forgotten");
}
