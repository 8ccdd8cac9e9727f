use super::*;

mod catalog;
mod progress;
mod surplus;
mod switch;

fn form(n: u8) -> Form {
    Form {
        kind: Some(EngineKind::Flux),
        version: format!("2.9.{n}"),
        bundle: Digest::from_bytes([n; 32]),
        registry: None,
        pull_secret: None,
        path: String::new(),
    }
}

fn wish(n: u8, change: u64) -> EngineRef {
    EngineRef {
        kind: EngineKind::Flux,
        version: form(n).version,
        bundle: form(n).bundle,
        size: 1,
        registry: None,
        pull_secret: None,
        within: 300,
        change,
    }
}

pub(super) fn change(from: u8, to: u8, failed: bool) -> Change {
    Change {
        from: form(from),
        to: form(to),
        number: 7,
        since: "2026-01-02T03:00:00Z".to_owned(),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: failed.then(|| "x".to_owned()),
        ending: None,
    }
}

#[test]
fn a_wish_begins_once_and_one_that_failed_only_when_it_is_wished_again() {
    let begin = |from: u8| Next::Begin { from: form(from) };
    let mut left = change(1, 2, true);
    left.objects = vec![Place::of(&ObjectId::new(Kind::Service, "a", "b"))];
    let cases = [
        // Nothing new; something new.
        (wish(1, 0), 1, None, Next::Keep),
        (wish(2, 7), 1, None, begin(1)),
        // Under way, also for an agent that has just started.
        (wish(2, 7), 2, Some(change(1, 2, false)), Next::Keep),
        // It was killed before it kept the new bundle.
        (wish(2, 7), 1, Some(change(1, 2, false)), begin(1)),
        // Yet another wish, and the one back: what worked last is what is gone back to.
        (wish(3, 8), 2, Some(change(1, 2, false)), begin(1)),
        (wish(1, 8), 2, Some(change(1, 2, false)), begin(1)),
        // It failed: back, and not again.
        (wish(2, 7), 2, Some(change(1, 2, true)), Next::Back),
        (wish(2, 7), 1, Some(change(1, 2, true)), Next::Keep),
        (wish(2, 8), 1, Some(change(1, 2, true)), begin(1)),
        // What failed is remembered until all of it is gone, and until something else is wished.
        (wish(1, 8), 1, Some(left), Next::Keep),
        (wish(1, 8), 1, Some(change(1, 2, true)), Next::Forget),
        (wish(3, 8), 1, Some(change(1, 2, true)), begin(1)),
        // It failed, it was killed on the way back, and something else is wished.
        (wish(3, 8), 2, Some(change(1, 2, true)), begin(1)),
    ];
    for (wish, in_force, change, expected) in cases {
        let found = next(&wish, &form(in_force), change.as_ref());
        assert_eq!(found, expected, "{wish:?} {in_force} {change:?}");
    }
    let mirrored = EngineRef {
        registry: Some("mirror.lan".to_owned()),
        ..wish(1, 0)
    };
    assert_eq!(next(&mirrored, &form(1), None), begin(1));
    let private = EngineRef {
        pull_secret: Some("regcred".to_owned()),
        ..wish(1, 0)
    };
    assert_eq!(next(&private, &form(1), None), begin(1));
    assert_eq!(next(&private, &Form::of(&private), None), Next::Keep);
}

/// Otherwise nothing would be known of what worked when it fails the second time.
#[test]
fn a_failed_change_that_is_wished_again_before_it_is_undone_keeps_its_way_back() {
    let failed = change(1, 2, true);
    let again = next(&wish(2, 8), &form(2), Some(&failed));
    assert_eq!(again, Next::Begin { from: form(1) });
    let anew = Change {
        number: 8,
        ..change(1, 2, false)
    };
    assert_eq!(next(&wish(2, 8), &form(2), Some(&anew)), Next::Keep);
    let failed = Change {
        failed: Some("again".to_owned()),
        ..anew
    };
    assert_eq!(next(&wish(2, 8), &form(2), Some(&failed)), Next::Back);
}

#[test]
fn a_version_that_never_worked_is_never_the_one_to_go_back_to() {
    let begin = Next::Begin { from: form(1) };
    for (in_force, what) in [
        (2, "it runs and was not seen to work yet"),
        (1, "it was not in force yet"),
        (
            3,
            "the next one was put in force, and its change was not kept",
        ),
    ] {
        for failed in [false, true] {
            let known = change(1, 2, failed);
            let found = next(&wish(3, 9), &form(in_force), Some(&known));
            assert_eq!(found, begin, "{what}, failed: {failed}");
        }
    }
}

#[test]
fn the_other_side_of_a_change_is_that_which_is_not_given() {
    let change = change(1, 2, false);
    assert_eq!(change.other(&form(1)), &form(2));
    assert_eq!(change.other(&form(2)), &form(1));
}

#[test]
fn a_form_is_told_with_its_engine_digest_and_registry() {
    let plain = form(1);
    assert_eq!(plain.words(), "flux 2.9.1 (sha256:010101010101…)");
    let mirrored = Form {
        kind: None,
        registry: Some("mirror.lan".to_owned()),
        ..plain
    };
    let text = "2.9.1 (sha256:010101010101…), images of mirror.lan";
    assert_eq!(mirrored.words(), text);
    let private = Form {
        pull_secret: Some("regcred".to_owned()),
        ..mirrored.clone()
    };
    let text = format!("{text}, pulled with Secret regcred");
    assert_eq!(private.words(), text);
    assert_ne!(private, mirrored);
    assert_eq!(form(1).following("clusters/a").path, "clusters/a");
    assert_ne!(form(1), mirrored);
    assert_ne!(form(1), form(2));
}
