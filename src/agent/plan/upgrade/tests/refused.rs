//! What becomes of an image that was taken back: until when it is remembered, and when it is tried anew.

use super::*;

/// Which image is wished is read after the start; until then nothing of an earlier trial is forgotten.
#[test]
fn a_refused_image_is_remembered_until_it_is_known_what_is_wished() {
    let refused = plain(Some(failure(1, Blame::Image, ENDED)));
    let unknown = Lead {
        unknown: true,
        heard: true,
        ..Lead::default()
    };
    let stays = Step::Stay(Stay::Unheard);
    assert_eq!(leads("a", &refused, 0, unknown), stays);
    let unwished = Lead {
        heard: true,
        ..Lead::default()
    };
    assert_eq!(leads("a", &refused, 0, unwished), Step::Forget);
}

#[test]
fn a_refused_image_waits_for_another_wish_and_one_that_the_hub_missed_for_the_hub() {
    let bad = plain(Some(failure(1, Blame::Image, SILENT)));
    assert_eq!(leads("a", &bad, 100, lead(true)), Step::Stay(Stay::Failed));
    let other = Lead {
        wished: Some("c"),
        ..lead(true)
    };
    assert_eq!(leads("a", &bad, 100, other), Step::Try("c".to_owned()));
    for wished in [None, Some("a")] {
        let lead = Lead {
            wished,
            ..lead(true)
        };
        assert_eq!(leads("a", &bad, 100, lead), Step::Forget, "{wished:?}");
    }
    let missed = plain(Some(failure(1, Blame::Open, UNHEARD)));
    let after = |heard, seconds| Lead {
        settling: Duration::from_secs(seconds),
        ..lead(heard)
    };
    // The hub hears the old one at once: it was there for the new one, too.
    assert_eq!(
        leads("a", &missed, 100, after(true, 59)),
        Step::Judge(failure(1, Blame::Image, UNHEARD))
    );
    assert_eq!(
        leads("a", &missed, 100, after(false, 59)),
        Step::Stay(Stay::Unheard)
    );
    assert_eq!(
        leads("a", &missed, 100, after(true, 60)),
        Step::Try("b".to_owned())
    );
    // It was away, as the old one saw.
    let away = plain(Some(failure(1, Blame::Hub, "the hub was away")));
    assert_eq!(
        leads("a", &away, 100, after(true, 1)),
        Step::Try("b".to_owned())
    );
    let often = plain(Some(failure(3, Blame::Open, UNHEARD)));
    assert_eq!(
        leads("a", &often, 100, after(true, 60)),
        Step::Stay(Stay::Failed)
    );
}

/// Before, who withdrew an image and gave it anew at once was told of the trial before, and none followed: the agent saw the same
/// wish as before.
#[test]
fn an_image_that_was_withdrawn_and_given_anew_is_tried_anew_although_nobody_saw_it_withdrawn() {
    let refused = |wish, tries| Failed {
        wish,
        ..failure(tries, Blame::Image, SILENT)
    };
    let lead = |wish| Lead { wish, ..lead(true) };
    let bad = plain(Some(refused(2, 1)));
    assert_eq!(leads("a", &bad, 100, lead(2)), Step::Stay(Stay::Failed));
    assert_eq!(leads("a", &bad, 100, lead(4)), Step::Forget);
    assert_eq!(
        leads("a", &plain(None), 100, lead(4)),
        Step::Try("b".to_owned())
    );
    let mut again = Deployed {
        failed: Some(refused(2, 3)),
        ..trial(None)
    };
    again.trial.as_mut().unwrap().wish = 4;
    assert_eq!(waits("a", &again, 0), Step::Return(refused(4, 1)));

    let wished = (Some("b"), 4, None);
    let says = |step: Step, deployed: &Deployed| condition(&step, deployed, "a", wished);
    for (step, deployed, begins) in [
        (Step::Stay(Stay::Failed), &bad, "b: wish 2: no Pod"),
        (Step::Forget, &bad, "b: wish 4: it begins"),
        (Step::Stay(Stay::OnTrial), &again, "b: wish 4: on trial;"),
        (
            Step::Return(refused(4, 1)),
            &again,
            "b: wish 4: it is taken back",
        ),
        (
            Step::Stay(Stay::Unheard),
            &plain(None),
            "b: wish 4: it waits",
        ),
    ] {
        let said = says(step, deployed);
        assert!(said.text.starts_with(begins), "{said:?}");
    }
    let said = condition(&Step::Stay(Stay::Current), &bad, "b", wished);
    assert_eq!(said.text, "b: wish 4: the agent runs it");
}

/// Before, it was tried, forgotten and tried again as fast as the API server answered, for as long as it was wished: under its own name
/// it is never there.
#[test]
fn an_image_of_which_the_admission_makes_another_is_refused_with_the_name_that_it_has_there() {
    let cluster = "eu1".parse().unwrap();
    let refused = plain(Some(rewritten(("b", 2), "mirror/b", &cluster)));
    let lead = |wish| Lead { wish, ..lead(true) };
    let stays = Step::Stay(Stay::Failed);
    assert_eq!(leads("a", &refused, 100, lead(2)), stays);
    assert_eq!(leads("a", &refused, 100, lead(3)), Step::Forget);
    let said = condition(&stays, &refused, "a", (Some("b"), 2, None));
    let text = "b: wish 2: the cluster's admission makes mirror/b of it; give that name: \
                'linesman cluster upgrade eu1 --image mirror/b'; a serves";
    assert_eq!(
        said,
        Said {
            status: Status::False,
            reason: "Returned",
            text: text.to_owned()
        }
    );
}
