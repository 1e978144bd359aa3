//! The body of a refusal: plain JSON, or RFC 9457 problem details where the client prefers them.

use poem::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

/// In which format refusals are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorBody {
    /// Problem details (RFC 9457) if the request's `Accept` prefers them, else JSON.
    #[default]
    Negotiated,
    /// Always `application/json`: `{"statusCode":429,"error":"rate_limited","message":"…"}`.
    Json,
    /// Always `application/problem+json`.
    Problem,
}

impl ErrorBody {
    pub(crate) fn format(self, headers: &HeaderMap) -> BodyFormat {
        match self {
            Self::Json => BodyFormat::Json,
            Self::Problem => BodyFormat::Problem,
            Self::Negotiated if prefers_problem(headers) => BodyFormat::Problem,
            Self::Negotiated => BodyFormat::Json,
        }
    }
}

/// A format that was decided for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Json,
    Problem,
}

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

impl BodyFormat {
    pub(crate) const fn content_type(self) -> HeaderValue {
        match self {
            Self::Json => HeaderValue::from_static(JSON),
            Self::Problem => HeaderValue::from_static(PROBLEM),
        }
    }

    pub(crate) fn render(self, status: StatusCode, code: &str, message: &str) -> Vec<u8> {
        let body = match self {
            Self::Json => serde_json::to_vec(&JsonBody {
                status_code: status.as_u16(),
                error: code,
                message,
            }),
            Self::Problem => serde_json::to_vec(&ProblemBody {
                r#type: "about:blank",
                title: status.canonical_reason().unwrap_or("Unknown"),
                status: status.as_u16(),
                detail: message,
                error: code,
            }),
        };
        body.expect("a struct of strings and numbers has a JSON form")
    }
}

#[derive(Serialize)]
struct JsonBody<'a> {
    #[serde(rename = "statusCode")]
    status_code: u16,
    error: &'a str,
    message: &'a str,
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    error: &'a str,
}

/// Whether `Accept` ranks problem details above JSON (RFC 9110, section 12.5.1). A type that is named outright beats one
/// that only a wildcard admits.
fn prefers_problem(headers: &HeaderMap) -> bool {
    let mut problem = (0, 0);
    let mut json = (0, 0);
    for value in headers.get_all(header::ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let quality = parts.find_map(quality).unwrap_or(1000);
            rank(&mut problem, name, PROBLEM, quality);
            rank(&mut json, name, JSON, quality);
        }
    }
    let ((problem_rank, problem_q), (json_rank, json_q)) = (problem, json);
    problem_q > json_q || (problem_q == json_q && problem_q > 0 && problem_rank > json_rank)
}

/// Keeps the quality of the most specific range that covers `media`.
fn rank(best: &mut (u8, u16), range: &str, media: &str, quality: u16) {
    let specificity = if range.eq_ignore_ascii_case(media) {
        3
    } else if range.eq_ignore_ascii_case("application/*") {
        2
    } else if range == "*/*" {
        1
    } else {
        return;
    };
    if specificity > best.0 {
        *best = (specificity, quality);
    }
}

/// `q=0.8` in thousandths.
fn quality(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let value: f32 = value.trim().parse().ok()?;
    // A float-to-integer cast saturates, and NaN becomes 0.
    Some((value.clamp(0.0, 1.0) * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(accept: &[&str]) -> BodyFormat {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, HeaderValue::from_str(value).expect("a header value"));
        }
        ErrorBody::Negotiated.format(&headers)
    }

    #[test]
    fn problem_details_are_for_those_who_prefer_them() {
        for accept in [
            &["application/problem+json"][..],
            &["application/problem+json, application/json;q=0.9"],
            &["text/html", "application/problem+json, */*;q=0.1"],
            &["*/*, application/problem+json"],
            &["APPLICATION/PROBLEM+JSON ; Q=0.5"],
        ] {
            assert_eq!(format(accept), BodyFormat::Problem, "{accept:?}");
        }
        for accept in [
            &[][..],
            &["*/*"],
            &["application/json, application/problem+json"],
            &["application/problem+json;q=0"],
            &["application/problem+json;q=0.2, application/json"],
            &["application/problem+json;q=NaN"],
            &["text/html"],
            &[";;,,=;q"],
        ] {
            assert_eq!(format(accept), BodyFormat::Json, "{accept:?}");
        }
    }

    #[test]
    fn bodies_carry_status_code_and_message() {
        let json: serde_json::Value = serde_json::from_slice(&BodyFormat::Json.render(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "Slow \"down\".",
        ))
        .expect("JSON");
        assert_eq!(
            json,
            serde_json::json!({"statusCode": 429, "error": "rate_limited", "message": "Slow \"down\"."})
        );
        let problem: serde_json::Value = serde_json::from_slice(&BodyFormat::Problem.render(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limited",
            "Slow down.",
        ))
        .expect("JSON");
        assert_eq!(
            problem,
            serde_json::json!({
                "type": "about:blank", "title": "Too Many Requests", "status": 429,
                "detail": "Slow down.", "error": "rate_limited"
            })
        );
    }
}
