//! The guards that ask the store together: phase A, and the quotas by user after it.

use poem::Request;
use smallvec::SmallVec;

use crate::{
    bound::Bound,
    error::Error,
    guard::{
        auth::{AuthQuestion, Verified},
        flag,
        rate_limit::{Claims, QuotaQuestions},
    },
    question::{Asked, Pending, Phase, Question, ask_together},
    runtime::Runtime,
    trail::Trail,
};

pub(super) async fn phase_a<'a>(
    runtime: &'a Runtime,
    bound: &'a Bound,
    request: &Request,
    trail: &mut Trail<'a>,
) -> Result<Option<Verified>, Error> {
    let asked = Asked::now().by(runtime.standing(bound.auth.as_ref(), request));
    let claims = Claims::new(&bound.quotas, runtime, request);
    claims.check_known(runtime, asked, trail)?;
    let takes = claims.takes();
    let mut phase = PhaseA {
        quotas: QuotaQuestions::ask(runtime, &claims, &takes, asked),
        flags: bound.flags.iter().map(|flag| flag::ask(runtime, flag, asked)).collect(),
        auth: bound
            .auth
            .as_ref()
            .map(|auth| AuthQuestion::ask(runtime, auth, request, asked)),
        verified: None,
        runtime,
        bound,
        request,
        asked,
        trail,
    };
    ask_together(&mut phase, asked).await?;
    Ok(phase.verified)
}

pub(super) async fn phase_b<'a>(
    runtime: &'a Runtime,
    bound: &'a Bound,
    request: &Request,
    trail: &mut Trail<'a>,
) -> Result<(), Error> {
    if bound.user_quotas.is_empty() {
        return Ok(());
    }
    let asked = Asked::now().by(runtime.standing(bound.auth.as_ref(), request));
    let claims = Claims::new(&bound.user_quotas, runtime, request);
    claims.check_known(runtime, asked, trail)?;
    let takes = claims.takes();
    let mut phase = PhaseB {
        quotas: QuotaQuestions::ask(runtime, &claims, &takes, asked),
        runtime,
        trail,
    };
    ask_together(&mut phase, asked).await
}

/// Quotas, flags, authentication: in this order.
struct PhaseA<'q, 'a> {
    quotas: QuotaQuestions<'q, 'a>,
    flags: SmallVec<[Question<'q, Option<bool>>; 2]>,
    auth: Option<AuthQuestion<'q>>,
    verified: Option<Verified>,
    runtime: &'a Runtime,
    bound: &'a Bound,
    request: &'q Request,
    asked: Asked,
    trail: &'q mut Trail<'a>,
}

impl Phase for PhaseA<'_, '_> {
    fn len(&self) -> usize {
        self.quotas.len() + self.flags.len() + 1
    }

    fn question(&mut self, index: usize) -> Option<&mut dyn Pending> {
        match index.checked_sub(self.quotas.len()) {
            None => self.quotas.question(index),
            Some(flag) => match self.flags.get_mut(flag) {
                Some(question) => Some(question),
                None => self.auth.as_mut()?.pending(),
            },
        }
    }

    fn read(&mut self, index: usize) -> Result<(), Error> {
        let Some(index) = index.checked_sub(self.quotas.len()) else {
            return self.quotas.read(index, self.runtime, self.trail);
        };
        if let Some(question) = self.flags.get_mut(index) {
            return flag::read(question, self.runtime, &self.bound.flags[index], self.asked, self.trail);
        }
        if let (Some(question), Some(auth)) = (&mut self.auth, &self.bound.auth) {
            self.verified = Some(question.read(self.runtime, auth, self.request)?);
        }
        Ok(())
    }
}

/// Quotas by user.
struct PhaseB<'q, 'a> {
    quotas: QuotaQuestions<'q, 'a>,
    runtime: &'a Runtime,
    trail: &'q mut Trail<'a>,
}

impl Phase for PhaseB<'_, '_> {
    fn len(&self) -> usize {
        self.quotas.len()
    }

    fn question(&mut self, index: usize) -> Option<&mut dyn Pending> {
        self.quotas.question(index)
    }

    fn read(&mut self, index: usize) -> Result<(), Error> {
        self.quotas.read(index, self.runtime, self.trail)
    }
}
