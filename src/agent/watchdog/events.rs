//! Events of heals. They are written beside the watchdog's work: no heal waits for an API server that takes its time.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
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
/// Notes whose repetitions are counted. One that was not among the last so many is written anew.
const NOTES: usize = 32;

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
        let events = Notes::new(context.kube.clone(), context.pod.clone());
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
async fn write_all(mut waiting: mpsc::Receiver<Posting>, mut to: impl Writes) {
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
    fn write(
        &mut self,
        event: &Event,
        about: &ObjectReference,
    ) -> impl Future<Output = bool> + Send;
}

/// Who writes each note, those of the last ones last. A [`Recorder`] takes Events for one that comes again, and keeps the first
/// note with a count, where all but their notes are alike: two objects of a cluster that are gone, two records that cannot be
/// read. So each note has one of its own.
struct Notes {
    kube: Client,
    reporter: Reporter,
    recorders: VecDeque<(Option<String>, Recorder)>,
}

impl Notes {
    fn new(kube: Client, pod: String) -> Self {
        Self {
            kube,
            reporter: Reporter {
                controller: AGENT.to_owned(),
                instance: Some(pod),
            },
            recorders: VecDeque::new(),
        }
    }

    fn of(&mut self, note: Option<&String>) -> Recorder {
        let known = self.recorders.iter().position(|(n, _)| n.as_ref() == note);
        let known = known.and_then(|at| self.recorders.remove(at));
        let (note, recorder) = known.unwrap_or_else(|| {
            let recorder = Recorder::new(self.kube.clone(), self.reporter.clone());
            (note.cloned(), recorder)
        });
        if self.recorders.len() == NOTES {
            self.recorders.pop_front();
        }
        self.recorders.push_back((note, recorder.clone()));
        recorder
    }
}

impl Writes for Notes {
    async fn write(&mut self, event: &Event, about: &ObjectReference) -> bool {
        let recorder = self.of(event.note.as_ref());
        match timeout(CALL, recorder.publish(event, about)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => debug!(%error, "no Event was written"),
            Err(_) => debug!("no Event was written in time"),
        }
        false
    }
}

#[cfg(test)]
mod tests;
