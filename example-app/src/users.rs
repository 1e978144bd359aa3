//! Who may log in, and the check of a password.

use std::time::Duration;

use argon2::{Argon2, PasswordVerifier};
use poem::http::StatusCode;
use resilience::Error;
use tokio::{sync::Semaphore, task, time::timeout};

/// Who can log in, with the hash of the password as a service would keep it in its database: `correct horse battery`.
const USERS: [(&str, &str); 1] = [(
    "ada",
    "$argon2id$v=19$m=19456,t=2,p=1$FoioiDLS4sqPY2+z2Fx/VA$f5P9f7oZO803/R6O2Eyc/0z/fLpKwGJkgz/q+NI/+W4",
)];

/// What a name that nobody has is checked against, so that it takes as long as any other: the hash of 24 random bytes.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$3QwqtTgnL/lWbyyj5PZqsw$KR3bsKPXCyP3ce2rIo8mN1mnn6wnGQBP6sxojO0Rc+o";

/// Checks at once at most: each takes 19 MiB and a core.
static CHECKS: Semaphore = Semaphore::const_new(4);

/// How long a login waits for its turn.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether `password` is that of `username`. Takes the same time for users that there are not.
///
/// # Errors
///
/// 503 `overloaded` if too many are being checked: nothing was looked at, and the attempt is given back.
pub(crate) async fn verify(username: &str, password: String) -> Result<bool, Error> {
    let known = USERS.into_iter().find(|(name, _)| *name == username);
    let hash = known.map_or(NOBODY, |(_, hash)| hash);
    let Ok(Ok(permit)) = timeout(PATIENCE, CHECKS.acquire()).await else {
        let overloaded = Error::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "Too many logins at once.",
        );
        return Err(overloaded.with_retry_after(PATIENCE));
    };
    let check = move || {
        // For as long as the check runs, whoever still waits for it.
        let _permit = permit;
        Argon2::default().verify_password(password.as_bytes(), hash).is_ok()
    };
    let is_right = task::spawn_blocking(check).await.unwrap_or(false);
    Ok(is_right && known.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_right() {
        assert!(verify("ada", "correct horse battery".into()).await.unwrap());
        assert!(!verify("ada", "correct horse".into()).await.unwrap());
        assert!(!verify("ada", String::new()).await.unwrap());
        assert!(!verify("eve", "correct horse battery".into()).await.unwrap());
    }

    #[test]
    fn unknown_names_cost_what_known_ones_cost() {
        let parameters = |hash: &str| hash.rsplitn(3, '$').last().map(str::to_owned);
        assert_eq!(parameters(USERS[0].1), parameters(NOBODY));
        assert_eq!(USERS[0].1.len(), NOBODY.len());
    }
}
