//! A CA of the hub's own of which files are lost. All that trusts it would turn away from another one, so none takes its place
//! unasked.

use std::path::Path;

use anyhow::Result;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::CA_NAME;
use crate::hub::serve::CannotStart;
use crate::hub::trust;

/// Where `ca.crt` is not there, with its key or without: why no other CA is made. None = there was none.
pub(super) fn lost(data: &Path, has_key: bool) -> Result<Option<CannotStart>> {
    let told = told(data)?.is_some();
    let (cert, key) = (data.join("ca.crt"), data.join("ca.key"));
    let (cert, key, dir) = (cert.display(), key.display(), data.display());
    let another = format!("linesman hub rotate ca --in 0 --data {dir}");
    let then = if told {
        format!("run: {another}")
    } else {
        "start the hub".to_owned()
    };
    // A first start that was cut off between the two files is finished; the hub's own key is made after both.
    let why = match (has_key, told) {
        (true, _) if told || data.join("hub.key").exists() => CannotStart {
            what: format!("{key} is there but {cert} is not, and every cluster trusts that CA"),
            next: format!(
                "restore {cert} from the backup, or from the file that somebody gave to 'linesman login --ca'; if there is none, move \
                 {key} away and {then}"
            ),
        },
        (false, true) => CannotStart {
            what: format!("neither {cert} nor {key} is there, and every cluster trusts that CA"),
            next: format!("restore both from the backup; if there is none, run: {another}"),
        },
        _ => return Ok(None),
    };
    Ok(Some(why))
}

/// The CA that agents were told of last, where it is one of a hub's own.
pub(super) fn told(data: &Path) -> Result<Option<String>> {
    Ok(trust::told_ca(data)?.filter(|pem| is_own(pem)))
}

fn is_own(pem: &str) -> bool {
    let Ok(first) = CertificateDer::from_pem_slice(pem.as_bytes()) else {
        return false;
    };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&first) else {
        return false;
    };
    let mut names = parsed.subject().iter_common_name();
    names.any(|name| name.as_str().is_ok_and(|name| name == CA_NAME))
}
