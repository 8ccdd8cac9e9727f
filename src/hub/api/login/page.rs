//! The few pages that a browser sees while someone logs in: readable without script, on a phone, in the dark.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::hub::api::problem::Problem;
use crate::keys;

const STYLE: &str = "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:32rem;margin:15vh auto;padding:0 1rem}\
h1{font-size:1.5rem}input{font:1.6rem monospace;letter-spacing:.1em;width:11ch;text-transform:uppercase}\
button{font:inherit;padding:.4rem 1.2rem}:root{color-scheme:light dark}";

/// A page of one message.
pub(super) struct Page {
    title: String,
    /// HTML.
    body: String,
}

impl Page {
    pub(super) fn new(title: &str, text: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: format!("<p>{}</p>", escaped(text)),
        }
    }

    pub(super) fn refused(title: &str, why: &str, next: &str) -> Self {
        let mut page = Self::new(title, why);
        page.body += "<p><strong>Next:</strong> ";
        page.body += &escaped(next);
        page.body += "</p>";
        page
    }

    pub(super) fn response(self, status: StatusCode) -> Response {
        let title = escaped(&self.title);
        let text = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title} - Linesman</title>\
             <style>{STYLE}</style></head><body><main><h1>{title}</h1>{}</main></body></html>",
            self.body
        );
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        );
        guard(headers);
        response
    }
}

/// Where a person types the code that their device shows.
pub(super) fn device(code: &str, wrong: &str) -> Page {
    let code: String = code
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(9)
        .collect();
    let wrong = if wrong.is_empty() {
        String::new()
    } else {
        format!("<p role=\"alert\">{}</p>", escaped(wrong))
    };
    Page {
        title: "Log a device in".to_owned(),
        body: format!(
            "{wrong}<form method=\"post\" action=\"device\"><p><label for=\"code\">The code that your terminal shows</label></p>\
             <p><input id=\"code\" name=\"code\" value=\"{}\" autocomplete=\"off\" autofocus required></p>\
             <p>Go on only if you started this login yourself: who sent you a code would be logged in as you.</p>\
             <p><button>Continue</button></p></form>",
            escaped(&code)
        ),
    }
}

pub(super) fn of_problem(problem: &Problem) -> Response {
    let page = Page::refused("The login failed", &problem.detail, &problem.next);
    let mut response = page.response(problem.slug.status());
    if let Some(seconds) = problem.retry_after {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

pub(super) fn redirect(url: &str) -> Response {
    let Ok(location) = HeaderValue::from_str(url) else {
        return Page::refused(
            "The login failed",
            "The address to go on to cannot be used.",
            "log in again",
        )
        .response(StatusCode::BAD_GATEWAY);
    };
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, location);
    guard(headers);
    response
}

fn guard(headers: &mut HeaderMap) {
    let hash = STANDARD.encode(keys::sha256(STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_text() {
        let page = Page::refused("x", "<script>alert('1')</script>", "\"&\"");
        assert_eq!(
            page.body,
            "<p>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;</p><p><strong>Next:</strong> &quot;&amp;&quot;</p>"
        );
        assert!(device("\"><script>", "").body.contains("value=\"script\""));
    }
}
