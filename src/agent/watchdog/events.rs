//! Events of heals. They are written beside the watchdog's work: no heal waits for an API server that takes its time.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Context;
use crate::manifests::AGENT;

/// Events that wait to be written. The hub has the heals themselves.
const MAX_WAITING: usize = 256;
const CALL: Duration = Duration::from_secs(3);

/// An Event to be written.
pub(super) struct Posting {
    pub(super) event: Event,
    pub(super) about: Option<ObjectReference>,
    /// What it is about where it cannot be about that.
    pub(super) instead: ObjectReference,
}

pub(super) struct Outbox {
    queue: mpsc::Sender<Posting>,
    /// Ends with the outbox.
    _writer: JoinSet<()>,
}

impl Outbox {
    pub(super) fn new(context: &Context) -> Self {
        let reporter = Reporter {
            controller: AGENT.to_owned(),
            instance: Some(context.pod.clone()),
        };
        let events = Recorder::new(context.kube.clone(), reporter);
        let (queue, waiting) = mpsc::channel(MAX_WAITING);
        let mut writer = JoinSet::new();
        writer.spawn(write_all(waiting, events));
        Self {
            queue,
            _writer: writer,
        }
    }

    /// Never waits.
    pub(super) fn put(&self, posting: Posting) {
        if let Err(full) = self.queue.try_send(posting) {
            let posting = full.into_inner();
            let (reason, note) = (posting.event.reason, posting.event.note);
            warn!(
                reason,
                note, "no Event is written: {MAX_WAITING} wait already"
            );
        }
    }
}

/// In their order. Of a cluster's object, and of one in a namespace that goes, none can be written.
async fn write_all(mut waiting: mpsc::Receiver<Posting>, to: impl Writes) {
    while let Some(posting) = waiting.recv().await {
        let Posting {
            event,
            about,
            instead,
        } = posting;
        if let Some(about) = &about
            && to.write(&event, about).await
        {
            continue;
        }
        to.write(&event, &instead).await;
    }
}

/// Who writes Events.
trait Writes {
    /// Whether it was written.
    fn write(&self, event: &Event, about: &ObjectReference) -> impl Future<Output = bool> + Send;
}

impl Writes for Recorder {
    async fn write(&self, event: &Event, about: &ObjectReference) -> bool {
        match timeout(CALL, self.publish(event, about)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => debug!(%error, "no Event was written"),
            Err(_) => debug!("no Event was written in time"),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::runtime::events::EventType;

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
        async fn write(&self, event: &Event, about: &ObjectReference) -> bool {
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
}
