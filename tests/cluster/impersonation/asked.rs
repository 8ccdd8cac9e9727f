//! Requests in each form in which the API server takes them, sent as they are: past the gate, as the line's own account that acts
//! as somebody, or through hub and gate.

use std::fs;
use std::path::{Path, PathBuf};

use http::{Request, header};
use serde_json::Value;

use crate::support::api::Api;
use crate::support::place::{kubectl, run};
use crate::support::world::World;

/// What the connection shall become.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Switch {
    None,
    WebSocket,
    Spdy,
}

use Switch::{None as Plain, Spdy, WebSocket};

#[derive(Debug)]
pub(crate) struct Form {
    method: &'static str,
    target: String,
    switch: Switch,
}

/// What leads into the Pod or is more than reading of it, behind its path. Nothing of it changes anything.
const OF_A_POD: [(&str, &str, Switch); 26] = [
    ("GET", "/exec?command=true&stdout=true", Plain),
    ("POST", "/exec?command=true&stdout=true", Plain),
    ("GET", "/exec?command=true&stdout=true", WebSocket),
    ("GET", "/exec?command=true&stdout=true", Spdy),
    ("POST", "/exec?command=true&stdout=true", Spdy),
    ("GET", "/attach?stdout=true", Plain),
    ("POST", "/attach?stdout=true", Plain),
    ("GET", "/attach?stdout=true", WebSocket),
    ("GET", "/attach?stdout=true", Spdy),
    ("POST", "/attach?stdout=true", Spdy),
    ("GET", "/portforward?ports=8080", Plain),
    ("POST", "/portforward?ports=8080", Plain),
    ("GET", "/portforward?ports=8080", WebSocket),
    ("GET", "/portforward?ports=8080", Spdy),
    ("POST", "/portforward?ports=8080", Spdy),
    ("GET", ":8080/proxy/page", Plain),
    ("HEAD", ":8080/proxy/page", Plain),
    ("POST", ":8080/proxy/page", Plain),
    ("GET", ":8080/proxy/page", WebSocket),
    ("GET", ":8080/proxy/page", Spdy),
    ("GET", "/ephemeralcontainers", Plain),
    ("PUT", "/ephemeralcontainers?dryRun=All", Plain),
    ("PATCH", "/ephemeralcontainers?dryRun=All", Plain),
    ("POST", "/eviction?dryRun=All", Plain),
    ("PATCH", "?dryRun=All", Plain),
    ("DELETE", "?dryRun=All", Plain),
];

pub(crate) fn of_a_pod(namespace: &str, pod: &str) -> Vec<Form> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
    let forms = OF_A_POD
        .iter()
        .map(|&(method, end, switch)| Form::new(method, format!("{path}{end}"), switch));
    let token = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token");
    forms.chain([Form::new("POST", token, Plain)]).collect()
}

impl Form {
    pub(crate) fn new(method: &'static str, target: impl Into<String>, switch: Switch) -> Self {
        Self {
            method,
            target: target.into(),
            switch,
        }
    }

    /// A session, which begins with another protocol.
    fn is_session(&self) -> bool {
        !matches!(self.switch, Plain) && !self.target.contains("/proxy/")
    }

    fn request(&self) -> http::request::Builder {
        let kind = match self.method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(self.method).uri(&self.target);
        let request = request.header(header::CONTENT_TYPE, kind);
        let forward = self.target.contains("/portforward");
        match self.switch {
            Plain => request,
            WebSocket => request
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, "AAAAAAAAAAAAAAAAAAAAAA==")
                .header(
                    header::SEC_WEBSOCKET_PROTOCOL,
                    if forward {
                        "SPDY/3.1+portforward.k8s.io"
                    } else {
                        "v5.channel.k8s.io"
                    },
                ),
            Spdy => request
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "SPDY/3.1")
                .header(
                    "x-stream-protocol-version",
                    if forward {
                        "portforward.k8s.io"
                    } else {
                        "v4.channel.k8s.io"
                    },
                ),
        }
    }
}

/// Somebody who sends requests.
pub(crate) struct Caller {
    api: Api,
    /// Whom the account acts as: user and group.
    acts_as: Option<[&'static str; 2]>,
}

impl Caller {
    /// Past the gate: `linesman-line` itself, with what a hub or gate gone wrong would hold.
    pub(crate) fn past_the_gate(kubeconfig: &Path, acts_as: [&'static str; 2]) -> Self {
        Self {
            api: Api::of(kubeconfig),
            acts_as: Some(acts_as),
        }
    }

    /// The hub's admin, through hub and gate.
    pub(crate) fn through_the_line(world: &World) -> Self {
        let file = world.directory.join("line-token.kubeconfig");
        fs::copy(world.line_kubeconfig(), &file).unwrap();
        with_token(&file, &world.hub.token());
        Self {
            api: Api::of(&file),
            acts_as: None,
        }
    }

    /// The code, and what was said where that is JSON.
    pub(crate) fn ask(&self, form: &Form) -> (u16, Value) {
        let mut request = form.request();
        for (name, value) in ["impersonate-user", "impersonate-group"]
            .iter()
            .zip(self.acts_as.iter().flatten())
        {
            request = request.header(*name, *value);
        }
        // With options in its body, a deletion has none of its query.
        let body = match form.method {
            "GET" | "HEAD" | "DELETE" => "",
            _ => "{}",
        };
        let (code, _, said) = self.api.raw(request.body(body.into()).unwrap());
        (code, serde_json::from_slice(&said).unwrap_or_default())
    }

    /// Which of these are refused or, asked for as sessions, do not begin as such.
    pub(crate) fn misses(&self, forms: &[Form]) -> Vec<String> {
        let passes = |form: &Form, code| {
            if form.is_session() {
                code == 101
            } else {
                ![101, 401, 403].contains(&code)
            }
        };
        self.wrong(forms, |form, code, _| passes(form, code))
    }

    /// Which of these are not refused in such words. The answer to a HEAD has none.
    pub(crate) fn reaches(&self, forms: &[Form], words: &str) -> Vec<String> {
        self.wrong(forms, |form, code, said| {
            let message = said["message"].as_str().unwrap_or_default();
            code == 403 && (form.method == "HEAD" || message.contains(words))
        })
    }

    fn wrong(&self, forms: &[Form], good: impl Fn(&Form, u16, &Value) -> bool) -> Vec<String> {
        let asked = forms.iter().map(|form| (form, self.ask(form)));
        asked
            .filter(|(form, (code, said))| !good(form, *code, said))
            .map(|(form, (code, said))| format!("{form:?}: {code} {said}"))
            .collect()
    }
}

/// A kubeconfig with a token of `linesman-line` itself.
pub(crate) fn line_account(world: &World) -> PathBuf {
    let account = ["-n", "linesman", "create", "token", "linesman-line"];
    let token = run(world.place.kubectl().args(account));
    let file = world.directory.join("line-account.kubeconfig");
    fs::copy(&world.place.kubeconfig, &file).unwrap();
    with_token(&file, token.trim());
    file
}

/// The token in place of whatever the kubeconfig's user has.
fn with_token(kubeconfig: &Path, token: &str) {
    let config = |args: &[&str]| {
        let mut kubectl = kubectl();
        kubectl.arg("--kubeconfig").arg(kubeconfig).arg("config");
        run(kubectl.args(args));
    };
    config(&["set-credentials", "tests", &format!("--token={token}")]);
    config(&["set-context", "--current", "--user=tests"]);
}
