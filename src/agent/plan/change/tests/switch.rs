//! One engine in place of the other.

use super::*;

fn argocd(n: u8) -> Form {
    Form {
        kind: Some(EngineKind::Argocd),
        ..form(n)
    }
}

fn of_both(from: Form, to: Form) -> Change {
    Change {
        from,
        to,
        both: true,
        ..change(1, 2, false)
    }
}

#[test]
fn a_form_is_another_ones_only_where_both_kinds_are_known() {
    let unknown = Form {
        kind: None,
        ..form(1)
    };
    assert!(form(1).is_another(&argocd(1)) && argocd(1).is_another(&form(2)));
    assert!(!form(1).is_another(&form(2)));
    assert!(!unknown.is_another(&argocd(1)) && !argocd(1).is_another(&unknown));
    assert!(of_both(form(1), argocd(2)).replaces());
    assert!(!change(1, 2, false).replaces());
}

#[test]
fn a_change_is_open_while_it_is_under_way_or_something_of_it_is_there() {
    let left = vec![Place::of(&ObjectId::new(Kind::Service, "a", "b"))];
    for (failed, left, open) in [
        (false, vec![], true),
        (true, left.clone(), true),
        (true, vec![], false),
    ] {
        let change = Change {
            objects: left,
            ..change(1, 2, failed)
        };
        assert_eq!(change.is_open(), open);
        let both = Change {
            both: true,
            ..change.clone()
        };
        assert!(prunes(None) && prunes(Some(&change)));
        assert_eq!(prunes(Some(&both)), !open);
        assert_eq!(is_of_both(&form(1), &form(1), &form(2), Some(&both)), open);
        assert!(!is_of_both(&form(1), &form(1), &form(2), Some(&change)));
    }
    assert!(!is_of_both(&form(1), &form(1), &form(2), None));
    assert!(is_of_both(&form(1), &form(1), &argocd(2), None));
    assert!(is_of_both(&argocd(1), &form(1), &form(2), None));
    assert!(is_of_both(&form(1), &argocd(1), &form(2), None));
}

/// One that is there, or that comes back, would prune what another path lacks.
#[test]
fn only_an_engine_that_comes_new_follows_what_the_hub_names() {
    let (plain, flux, argocd) = (form(1), form(1).following("a"), argocd(2).following("b"));
    let replacing = of_both(flux.clone(), argocd.clone());
    let unkept = of_both(plain.clone(), argocd.clone());
    let (one, other) = (EngineKind::Flux, EngineKind::Argocd);
    for (kind, in_force, change, expected) in [
        (one, &flux, None, "a"),
        (other, &flux, None, "named"),
        // The attempt is not in force yet, or no more.
        (other, &flux, Some(&replacing), "named"),
        (one, &flux, Some(&replacing), "a"),
        // It is, and is repeated or ended.
        (other, &argocd, Some(&replacing), "b"),
        (one, &argocd, Some(&replacing), "a"),
        // It came to its end: the way back is a hand-over like any other.
        (one, &argocd, None, "named"),
        // Of an agent of before, which kept none.
        (one, &argocd, Some(&unkept), "named"),
        (one, &plain, None, "named"),
    ] {
        let told = follows(kind, in_force, change, "named");
        assert_eq!(told, expected, "{kind} {in_force:?} {change:?}");
    }
}

#[test]
fn an_engine_rests_while_the_other_one_takes_its_place() {
    let replacing = of_both(form(1), argocd(2));
    let keep = Next::Begin { from: form(1) };
    assert!(rests(&Next::Switch, &form(1), None));
    assert!(rests(&Next::Back, &argocd(2), Some(&replacing)));
    assert!(!rests(&Next::Back, &form(1), Some(&replacing)));
    assert!(!rests(&Next::Back, &argocd(2), None));
    assert!(!rests(&Next::Keep, &argocd(2), Some(&replacing)));
    assert!(!rests(&keep, &argocd(2), Some(&replacing)));
}

#[test]
fn an_engine_is_switched_only_for_the_wish_that_was_begun() {
    let wish = EngineRef {
        kind: EngineKind::Argocd,
        ..wish(2, 7)
    };
    let begun = of_both(form(1), argocd(2));
    assert_eq!(next(&wish, &form(1), Some(&begun)), Next::Switch);
    let first = Next::Begin { from: form(1) };
    let another = Change {
        number: 6,
        ..begun.clone()
    };
    assert_eq!(next(&wish, &form(1), Some(&another)), first);
    let to_another = Change {
        to: argocd(3),
        ..begun
    };
    assert_eq!(next(&wish, &form(1), Some(&to_another)), first);
    assert_eq!(next(&wish, &form(1), None), first);
}
