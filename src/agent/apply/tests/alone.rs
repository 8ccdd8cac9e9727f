//! What others put into a Secret in which they have no say.

use super::*;
use crate::agent::engine::flux::SIGNERS;

fn refused() -> (u16, Value) {
    let (code, mut said) = status(422, "field is immutable when `immutable` is set");
    let cause = json!({"field": "data", "message": "fixed", "reason": "FieldValueForbidden"});
    said["details"] = json!({"causes": [cause]});
    (code, said)
}

/// F24: to apply would leave it there, and from one that nobody may change any more it goes with the Secret.
#[tokio::test]
async fn a_key_beside_the_signers_is_taken_away() {
    let install = plan::tests::install_signed();
    let id = ObjectId::new(Kind::Secret, "flux-system", SIGNERS);
    let step = Step {
        action: Action::WriteSecret,
        target: id.clone(),
        cause: None,
    };
    let mut seen = live(&id);
    seen.fields["data"] = json!({"theirs.asc": "hash"});
    let mut observed = Observed::default();
    observed.objects.insert(id.clone(), Arc::new(seen));
    let (patch, delete) = (Method::PATCH, Method::DELETE);
    for (fixed, expected) in [
        (false, vec![patch.clone()]),
        (true, vec![patch.clone(), delete, patch]),
    ] {
        let made = json!({"metadata": {"name": SIGNERS, "resourceVersion": "9"}});
        let tried = AtomicUsize::new(0);
        let answer = move |method: &Method, _: &Uri| {
            let first = *method == Method::PATCH && tried.fetch_add(1, Ordering::Relaxed) == 0;
            Some(match *method {
                Method::GET => status(404, "gone"),
                _ if first && fixed => refused(),
                _ => (200, made.clone()),
            })
        };
        let (calls, done) = done_to(&install, &step, &observed, &[], answer).await;
        let none = json!({"data": {"theirs.asc": null}});
        assert_eq!(calls.first(), Some(&(Method::PATCH, none)));
        let methods = calls.into_iter().map(|(method, _)| method);
        let methods: Vec<Method> = methods.filter(|m| *m != Method::GET).collect();
        assert_eq!((methods, done.outcome), (expected, Outcome::Done));
    }
}
