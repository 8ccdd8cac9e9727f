use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, Uri};
use kube::client::Body;

use super::*;
use crate::agent::engine::argocd::{PROBED_FROM, canary};
use crate::agent::plan::{self, Object};
use crate::wire::api::EngineKind;

mod alone;
mod inventory;
mod recreate;
mod release;
mod replicas;
mod withdrawn;

#[test]
fn a_spec_is_replaced_as_a_whole_and_that_of_fluxs_roots_field_by_field() {
    let spec = json!({"url": "ssh://git@hub.test/c.git", "ref": {"branch": "main"}});
    for (kind, patch) in [
        (
            Kind::Application,
            json!([{"op": "replace", "path": "/spec", "value": spec}]),
        ),
        (
            Kind::GitRepository,
            json!([
                {"op": "add", "path": "/spec/ref", "value": {"branch": "main"}},
                {"op": "add", "path": "/spec/url", "value": "ssh://git@hub.test/c.git"},
            ]),
        ),
    ] {
        let astray = ["/spec/ref/tag".to_owned()];
        assert_eq!(replacement(kind, &spec, &astray), patch, "{kind}");
    }
    let astray = ["/spec/timeout".to_owned()];
    for kind in [Kind::GitRepository, Kind::Kustomization] {
        let patch = replacement(kind, &spec, &astray);
        assert_eq!(patch[2], json!({"op": "remove", "path": "/spec/timeout"}));
    }
}

/// A guard policy is in no namespace.
#[tokio::test]
async fn a_spec_is_replaced_where_the_object_is() {
    let install = plan::tests::install();
    for (kind, namespace, name, place) in [
        (
            Kind::ValidatingAdmissionPolicyBinding,
            "",
            "linesman-guard",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/linesman-guard",
        ),
        (
            Kind::Deployment,
            "flux-system",
            "source-controller",
            "/apis/apps/v1/namespaces/flux-system/deployments/source-controller",
        ),
    ] {
        let id = ObjectId::new(kind, namespace, name);
        let whole = install.whole(&id).unwrap();
        let step = Step {
            action: Action::Replace,
            target: id,
            cause: None,
        };
        let made = json!({"metadata": {"name": name, "resourceVersion": "9"}});
        let answer = move |_: &Method, path: &str| {
            if path == place {
                (200, made.clone())
            } else {
                status(404, path)
            }
        };
        let (calls, done) = done_at(&step, &Observed::default(), &[], answer).await;
        let patch = json!([{"op": "replace", "path": "/spec", "value": whole["spec"]}]);
        assert_eq!(calls, [(Method::PATCH, patch)]);
        assert_eq!(done.outcome, Outcome::Done, "{place}");
    }
}

/// An account has no spec: of what others wrote there it is that it gives no tokens.
#[tokio::test]
async fn an_account_gives_tokens_again() {
    let name = "source-controller";
    let step = Step {
        action: Action::Replace,
        target: ObjectId::new(Kind::ServiceAccount, "flux-system", name),
        cause: None,
    };
    let made = json!({"metadata": {"name": name, "resourceVersion": "9"}});
    let answer = move |_: &Method| (200, made.clone());
    let (calls, outcome) = sent(&step, &Observed::default(), answer).await;
    let none = json!({"automountServiceAccountToken": null});
    assert_eq!(calls, [(Method::PATCH, none)]);
    assert_eq!(outcome, Outcome::Done);
}

/// What was sent, and what a step came to; the API server answers each method as given.
async fn sent(
    step: &Step,
    observed: &Observed,
    answer: impl Fn(&Method) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Outcome) {
    let (calls, done) = done(step, observed, &[], answer).await;
    (calls, done.outcome)
}

/// The same with what is saved, before and after.
async fn done(
    step: &Step,
    observed: &Observed,
    saved: &[Saved],
    answer: impl Fn(&Method) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Done) {
    done_at(step, observed, saved, move |method, _| answer(method)).await
}

/// The same with answers by path, too.
async fn done_at(
    step: &Step,
    observed: &Observed,
    saved: &[Saved],
    answer: impl Fn(&Method, &str) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Done) {
    let answer = move |method: &Method, uri: &Uri| Some(answer(method, uri.path()));
    done_by(step, observed, saved, answer).await
}

/// The same by an API server that never answers where there is no answer.
pub(super) async fn done_by(
    step: &Step,
    observed: &Observed,
    saved: &[Saved],
    answer: impl Fn(&Method, &Uri) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Done) {
    done_to(&plan::tests::install(), step, observed, saved, answer).await
}

/// The same to another install.
async fn done_to(
    install: &Install,
    step: &Step,
    observed: &Observed,
    saved: &[Saved],
    answer: impl Fn(&Method, &Uri) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Vec<(Method, Value)>, Done) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (calls, answer) = (Arc::clone(&calls), Arc::clone(&answer));
        async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let Some((code, said)) = answer(&method, &uri) else {
                return pending().await;
            };
            calls.lock().unwrap().push((method, body));
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    let kube = Client::new(service, "default");
    let hands = Hands {
        kube: &kube,
        install,
        view: &View::new(install),
        observed,
        saves: &Saves::new(&kube, "linesman"),
    };
    let done = hands.act(step, saved).await;
    let calls = seen.lock().unwrap().clone();
    (calls, done)
}

pub(super) fn status(code: u16, message: &str) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "x" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": message,
    });
    (code, status)
}

fn live(id: &ObjectId) -> Object {
    let live = json!({
        "apiVersion": id.kind.api_version(), "kind": id.kind.as_str(),
        "metadata": {
            "name": id.name, "namespace": id.namespace, "uid": "uid-1", "resourceVersion": "7",
            "finalizers": ["finalizers.fluxcd.io", "example.org/mine"],
        },
    });
    project::object(id.kind, serde_json::from_value(live).unwrap())
}

#[tokio::test]
async fn finalizers_are_taken_from_the_object_that_was_seen_and_from_no_other() {
    let id = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
    let observed = Observed {
        objects: [(id.clone(), Arc::new(live(&id)))].into(),
        ..Observed::default()
    };
    let step = Step {
        action: Action::Unpin {
            keep: vec!["example.org/mine".to_owned()],
        },
        target: id.clone(),
        cause: None,
    };
    let meta = json!({"finalizers": ["example.org/mine"], "uid": "uid-1", "resourceVersion": "7"});
    for code in [409, 404] {
        let (calls, outcome) = sent(&step, &observed, move |_| status(code, "x")).await;
        assert_eq!(calls, [(Method::PATCH, json!({"metadata": meta}))]);
        assert_eq!(outcome, Outcome::Unserved("x".to_owned()), "{code}");
    }
    let (_, outcome) = sent(&step, &observed, |_| status(422, "x")).await;
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
}

/// F12: Argo CD says when it looked by its own clock.
#[tokio::test]
async fn a_question_to_argo_cd_goes_with_its_last_look() {
    let install = plan::tests::install_of(EngineKind::Argocd);
    let looked = "2030-01-01T00:00:08Z";
    let root = |version: &str| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "linesman", "namespace": "argocd", "resourceVersion": version},
            "status": {"reconciledAt": looked},
        })
    };
    let seen = serde_json::from_value(root("7")).unwrap();
    let seen = project::object(Kind::Application, seen);
    let observed = Observed {
        objects: [(install.sync.clone(), Arc::new(seen))].into(),
        ..Observed::default()
    };
    let step = Step {
        action: Action::Nudge,
        target: install.sync.clone(),
        cause: None,
    };
    let patched = root("8");
    let answer = move |_: &Method, _: &Uri| Some((200, patched.clone()));
    let (calls, done) = done_to(&install, &step, &observed, &[], answer).await;
    let (method, body) = &calls[0];
    let annotations = &body["metadata"]["annotations"];
    let sent = annotations[PROBED_AT].as_str().unwrap();
    let asked = json!({REFRESH: "normal", PROBED_AT: sent, PROBED_FROM: looked});
    assert_eq!((calls.len(), method), (1, &Method::PATCH));
    assert_eq!(annotations, &asked);
    assert_eq!(done.outcome, Outcome::Done);
}

/// F39: an operation that somebody has begun since then is not forgotten.
#[tokio::test]
async fn argo_cd_forgets_the_operation_that_was_seen_and_is_asked_to_look() {
    let install = plan::tests::install_of(EngineKind::Argocd);
    let root = live(&install.sync);
    let observed = Observed {
        objects: [(install.sync.clone(), Arc::new(root))].into(),
        ..Observed::default()
    };
    let step = Step {
        action: Action::Retry,
        target: install.sync.clone(),
        cause: None,
    };
    let forgets = json!({
        "metadata": {"uid": "uid-1", "resourceVersion": "7"}, "status": {"operationState": null},
    });
    let patched = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "linesman", "namespace": "argocd", "resourceVersion": "8"},
    });
    let answer = move |_: &Method, _: &Uri| Some((200, patched.clone()));
    let (calls, done) = done_to(&install, &step, &observed, &[], answer).await;
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], (Method::PATCH, forgets.clone()));
    let asked = &calls[1].1["metadata"]["annotations"];
    assert_eq!(asked[REFRESH], json!("normal"));
    assert_eq!(done.outcome, Outcome::Done);
    let answer = |_: &Method, _: &Uri| Some(status(409, "x"));
    let (calls, done) = done_to(&install, &step, &observed, &[], answer).await;
    assert_eq!(calls, [(Method::PATCH, forgets)]);
    assert_eq!(done.outcome, Outcome::Unserved("x".to_owned()));
}

/// F12: Argo CD takes its own annotation away for an answer; ours beside it says when it was asked.
#[tokio::test]
async fn a_question_to_an_applicationset_goes_with_its_time() {
    let mut install = plan::tests::install_of(EngineKind::Argocd);
    let ours = canary("argocd");
    let some = install.wanted[&install.sync].clone();
    install.wanted.insert(ours.clone(), some);
    let step = Step {
        action: Action::Nudge,
        target: ours,
        cause: None,
    };
    let live = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "linesman-probe", "namespace": "argocd", "resourceVersion": "8"},
    });
    let answer = move |_: &Method, _: &Uri| Some((200, live.clone()));
    let (calls, done) = done_to(&install, &step, &Observed::default(), &[], answer).await;
    let (method, body) = &calls[0];
    let annotations = &body["metadata"]["annotations"];
    let sent = annotations[PROBED_AT].as_str().unwrap();
    assert!(clock::parse_rfc3339(sent).is_some(), "{sent}");
    assert_eq!((calls.len(), method), (1, &Method::PATCH));
    assert_eq!(annotations, &json!({REFRESH_SET: "true", PROBED_AT: sent}));
    assert_eq!(done.outcome, Outcome::Done);
}

#[tokio::test]
async fn what_is_made_anew_goes_with_all_that_hangs_on_it() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let step = |action| Step {
        action,
        target: id.clone(),
        cause: None,
    };
    let answer = |method: &Method| match *method {
        Method::GET => status(404, "gone"),
        _ => (200, json!({"metadata": {"name": "source-controller"}})),
    };
    let uid = || "uid-1".to_owned();
    for (action, how) in [
        (Action::Recreate { uid: uid() }, "Foreground"),
        (Action::CutRights { uid: uid() }, "Background"),
    ] {
        let (calls, outcome) = sent(&step(action), &Observed::default(), answer).await;
        let (method, body) = &calls[0];
        assert_eq!(*method, Method::DELETE);
        assert_eq!(body["propagationPolicy"], json!(how));
        assert_eq!(body["preconditions"], json!({"uid": "uid-1"}));
        assert_eq!(outcome, Outcome::Done);
    }
}

pub(super) fn crd_of_kustomizations() -> ObjectId {
    ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    )
}

/// F17: what Git's version of a CRD left behind keeps the agent from its own roots as it keeps Flux from what it brings.
#[tokio::test]
async fn an_object_whose_field_managers_speak_of_a_gone_version_is_renewed_and_applied_again() {
    let id = ObjectId::new(Kind::Kustomization, "flux-system", "flux-system");
    let observed = Observed {
        objects: [(id.clone(), Arc::new(live(&id)))].into(),
        ..Observed::default()
    };
    let step = Step {
        action: Action::Apply,
        target: id,
        cause: None,
    };
    let of = |version: &str| format!("kustomize.toolkit.fluxcd.io/{version}");
    let text = format!(
        "request to convert CR to an invalid group/version: {}",
        of("v1beta2")
    );
    let old = json!({"metadata": {
        "name": "flux-system", "namespace": "flux-system", "resourceVersion": "8",
        "managedFields": [{"manager": "m", "apiVersion": of("v1beta2")}],
    }});
    let refuses = AtomicUsize::new(1);
    let answer = move |method: &Method| match *method {
        Method::GET => (200, old.clone()),
        _ if refuses.swap(0, Ordering::Relaxed) == 1 => status(500, &text),
        _ => (
            200,
            json!({"metadata": {"name": "flux-system", "resourceVersion": "9"}}),
        ),
    };
    let (calls, outcome) = sent(&step, &observed, answer).await;
    let renewed = json!({"metadata": {
        "managedFields": [{"manager": "m", "apiVersion": of("v1")}], "resourceVersion": "8",
    }});
    let applied = calls[0].clone();
    let expected = [
        applied.clone(),
        (Method::GET, Value::Null),
        (Method::PATCH, renewed),
        applied,
    ];
    assert_eq!(calls, expected);
    assert_eq!(outcome, Outcome::Done);
}
