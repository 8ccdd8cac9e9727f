//! The way to the hub: what the cluster's own YAML says of it, and else what the agent's environment does.

use kube::api::Api;
use tracing::info;

use super::{Join, Joining, Object, State, Way};
use crate::agent::link::ProxyConfig;

impl Joining {
    /// The way to the hub is the owner's to say, with a token or without. What goes over the former one may be cut by now, so it
    /// does not wait for an answer of the hub.
    pub(super) async fn take_way(&mut self, secrets: &Api<Object>, join: &Join) {
        let proxy = self.around.way(join.proxy.as_ref());
        let other = self.joined.send_if_modified(|joined| match joined {
            Some(joined) if joined.proxy != proxy => {
                joined.proxy.clone_from(&proxy);
                true
            }
            Some(_) | None => false,
        });
        if other {
            let way = self.around.words(join.proxy.as_ref(), &join.hub);
            info!(way, "another way to the hub is applied");
        }
        let way = Some(Way::of(join));
        if let Some(state) = self.state.as_mut().filter(|s| s.way != way) {
            state.way = way;
            let state = state.clone();
            self.store(secrets, &state).await;
        }
    }

    /// The proxy by which all that talk to the hub go.
    pub(super) fn proxy_of(&self, state: &State, join: Option<&Join>) -> Option<ProxyConfig> {
        match state.way.clone().or_else(|| join.map(Way::of)) {
            Some(Way(given)) => self.around.way(given.as_ref()),
            None => match &*self.joined.borrow() {
                Some(joined) => joined.proxy.clone(),
                None => self.around.way(None),
            },
        }
    }

    /// Says once which way is taken, and by whose word.
    pub(super) fn tell_way(&self, join: Option<&Join>) {
        let state = self.state.as_ref();
        let kept = state.and_then(|state| state.assignment.hub.urls.first());
        let Some(url) = kept.or_else(|| join.map(|join| &join.hub)) else {
            return;
        };
        let given = state.and_then(|state| state.way.clone());
        let given = given.or_else(|| join.map(Way::of));
        let given = given.and_then(|way| way.0);
        let way = self.around.words(given.as_ref(), url);
        info!(way, "way to the hub");
    }
}
