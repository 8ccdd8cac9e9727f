//! `kubectl --as`: which grants let someone go as someone else. One grant has to name the user and every group of a
//! request, for what two people were allowed apart nobody was allowed together.

use super::{Asker, Denied, Grant, No, Subject};
use crate::kubeapi::acting::Acting;

impl Grant {
    /// Whether it lets its holder act as them.
    pub fn lets_act_as(&self, acting: &Acting) -> Result<(), No> {
        let user = self.act_as.contains(&Subject::User(acting.user.clone()));
        let group = |name: &String| self.act_as.contains(&Subject::Group(name.clone()));
        if user && acting.groups.iter().all(group) {
            Ok(())
        } else {
            Err(No::ActAs(acting.to_string()))
        }
    }
}

/// The grants of these by which the request can go; all of them where it goes as the asker.
pub(super) fn letting<'a>(
    asker: &Asker<'_>,
    grants: &[&'a Grant],
    acting: Option<&Acting>,
) -> Result<Vec<&'a Grant>, Denied> {
    let Some(acting) = acting else {
        return Ok(grants.to_vec());
    };
    let lets = |grant: &&&Grant| grant.lets_act_as(acting).is_ok();
    let letting: Vec<&Grant> = grants.iter().filter(lets).copied().collect();
    if letting.is_empty() {
        return Err(Denied {
            rule: "Impersonation",
            reason: format!(
                "no grant lets {} act as {acting} (kubectl --as)",
                asker.name
            ),
            next: "leave out --as and --as-group, or ask a hub admin for a grant that names them"
                .to_owned(),
        });
    }
    Ok(letting)
}
