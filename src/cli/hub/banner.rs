//! What the hub prints once it listens.

use std::path::Path;

use crate::hub::HubConfig;
use crate::hub::tls::TlsSource;

/// What a person needs after a start. The token itself is not printed: output ends up in logs.
pub(super) fn banner(config: &HubConfig, own_ca: bool, first: bool) -> String {
    let file = |name: &str| config.data.join(name).display().to_string();
    let where_to = format!(
        "hub      {}\ncatalog  {}/catalog.git\nhealth   http://{}/readyz, /metrics\ndata     {}\n",
        config.url,
        config.git_url,
        config.health_listen,
        config.data.display()
    );
    let ca = if own_ca {
        ca_flag(config, &file("ca.crt"))
    } else {
        String::new()
    };
    let then = if first {
        let token = file("admin.token");
        format!(
            "\nNo admin had a token in force. Log in as admin:\n  linesman login {} --token-file {token}{ca}\n",
            config.url
        )
    } else {
        String::new()
    };
    where_to + &then
}

fn ca_flag(config: &HubConfig, own: &str) -> String {
    let path = match &config.tls {
        TlsSource::Files { ca: Some(ca), .. } => ca.as_path(),
        TlsSource::Own { .. } | TlsSource::Files { ca: None, .. } => Path::new(own),
    };
    format!(" --ca {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::banner;
    use crate::cli::hub::tests::parsed;

    #[test]
    fn the_first_start_says_how_to_log_in_and_shows_no_token() {
        let config = parsed(&["--url", "https://h"]);
        let text = banner(&config, true, true);
        assert!(
            text.ends_with(
                "  linesman login https://h --token-file /d/admin.token --ca /d/ca.crt\n"
            ),
            "{text}"
        );
        assert!(!banner(&config, true, false).contains("login"));
        let files = parsed(&["--url", "https://h", "--tls-cert", "c", "--tls-key", "k"]);
        assert!(banner(&files, false, true).ends_with("--token-file /d/admin.token\n"));
    }
}
