//! Quotas in a file.

use std::{fs, path::PathBuf};

use poem::EndpointExt;
use resilience::{BuildError, Builder, LimitSource, Resilience};

use super::{api, eventually, in_force, serves};

/// A file of its own for each test, gone with it.
struct File(tempfile::TempDir);

impl File {
    fn saying(text: &str) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        file.says(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("limits.toml")
    }

    fn says(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    fn builder(&self) -> Builder {
        Resilience::builder().memory().limits_file(self.path())
    }
}

fn of(limit: u32) -> String {
    format!("[limits.limits-api]\nlimit = {limit}\nwindow = \"1h\"\n")
}

#[tokio::test]
async fn a_change_of_the_file_is_picked_up() {
    let file = File::saying(&of(8));
    let resilience = file.builder().build().unwrap();
    let app = api.with(resilience.clone());
    assert_eq!(in_force(&resilience), (Some(8), Some(LimitSource::File), 1));
    file.says(&of(9));
    serves(&app, 9).await;
    file.says("");
    eventually("the attribute defines it", async || {
        in_force(&resilience).1 == Some(LimitSource::Attribute)
    })
    .await;
}

#[tokio::test]
async fn a_mistake_at_the_start_names_file_line_and_key() {
    let file = File::saying(&(of(8) + "windw = 3\n"));
    let error = file.builder().build().unwrap_err();
    let BuildError::LimitsFile(mistake) = &error else {
        panic!("{error}")
    };
    assert_eq!((mistake.line(), mistake.key()), (Some(4), "limits.limits-api.windw"));
    let expected = format!(
        "option `limits_file`: {}:4: `limits.limits-api.windw` is unknown",
        file.path().display()
    );
    assert!(error.to_string().starts_with(&expected), "{error}");
    let missing = Resilience::builder()
        .memory()
        .limits_file("/nowhere/limits.toml")
        .build();
    assert!(matches!(missing, Err(BuildError::LimitsFile(error)) if error.line().is_none()));
}
