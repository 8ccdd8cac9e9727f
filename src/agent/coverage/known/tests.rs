use super::*;

fn map(rows: &[(&str, &str)]) -> ConfigMap {
    let rows = rows.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    ConfigMap {
        data: Some(rows.collect()),
        ..ConfigMap::default()
    }
}

fn hear(known: &mut Known, events: Vec<Event<ConfigMap>>) -> Vec<bool> {
    let all = events.into_iter();
    all.map(|event| known.take(Ok(News::Map(event)))).collect()
}

fn listed(known: &Known) -> Vec<&str> {
    let names = known.scope.iter().flat_map(|scope| &scope.namespaces);
    names.map(String::as_str).collect()
}

#[test]
fn a_list_that_goes_or_cannot_be_read_leaves_the_one_before_it() {
    let mut known = Known::default();
    let first = map(&[("namespaces", "a"), ("access", "edit")]);
    let heard = hear(
        &mut known,
        vec![
            Event::Init,
            Event::InitApply(first.clone()),
            Event::InitDone,
        ],
    );
    assert_eq!(
        (heard, listed(&known)),
        (vec![false, false, true], vec!["a"])
    );
    assert_eq!(known.wrong, None);
    hear(&mut known, vec![Event::Apply(map(&[("namespaces", "*")]))]);
    assert_eq!(listed(&known), ["a"]);
    let (status, reason, text) = verdict(&known, &Plan::default(), &[]);
    assert_eq!((status, reason), (Status::True, "NoScope"));
    assert!(
        text.contains("'*'") && text.contains("stays in force"),
        "{text}"
    );
    hear(&mut known, vec![Event::Delete(first)]);
    assert_eq!(listed(&known), ["a"]);
    hear(
        &mut known,
        vec![Event::Apply(map(&[("namespaces", "a,c")]))],
    );
    assert_eq!((listed(&known), &known.wrong), (vec!["a", "c"], &None));
}

#[test]
fn without_a_list_from_the_start_nothing_is_covered() {
    let mut known = Known::default();
    hear(&mut known, vec![Event::Init, Event::InitDone]);
    assert_eq!(listed(&known), [""; 0]);
    let (_, _, text) = verdict(&known, &Plan::default(), &[]);
    assert!(
        text.contains("linesman-scope is missing; no namespace is covered"),
        "{text}"
    );
}

#[test]
fn the_condition_names_what_is_missing_and_then_what_is_covered() {
    let mut known = Known::default();
    let first = map(&[("namespaces", "a,b")]);
    let events = vec![Event::Init, Event::InitApply(first), Event::InitDone];
    hear(&mut known, events);
    let missing = Plan {
        missing: vec!["b".to_owned()],
        ..Plan::default()
    };
    let (status, reason, text) = verdict(&known, &missing, &[]);
    assert_eq!((status, reason), (Status::True, "NamespaceMissing"));
    assert!(
        text.contains("namespace b of ConfigMap linesman-scope"),
        "{text}"
    );
    assert_eq!(
        verdict(&known, &Plan::default(), &[]),
        (Status::False, "Covered", "namespaces a, b".to_owned())
    );
}

#[test]
fn a_list_anew_replaces_what_was_known_and_what_ends_counts_as_gone() {
    let mut mirror = Mirror::<&str, u8>::default();
    let of = |(key, value): (&'static str, u8)| (key, (value > 0).then_some(value));
    for event in [
        Event::Init,
        Event::InitApply(("a", 1)),
        Event::InitApply(("b", 1)),
    ] {
        mirror.take(event, of);
    }
    assert!(!mirror.whole && mirror.now.is_empty());
    mirror.take(Event::InitDone, of);
    mirror.take(Event::Apply(("a", 0)), of);
    mirror.take(Event::Apply(("c", 2)), of);
    assert_eq!(mirror.now, BTreeMap::from([("b", 1), ("c", 2)]));
    for event in [Event::Init, Event::InitApply(("c", 3)), Event::InitDone] {
        mirror.take(event, of);
    }
    mirror.take(Event::Delete(("c", 3)), of);
    assert!(mirror.whole && mirror.now.is_empty());
}
