//! What a call carries through the layers.

use std::{fmt, sync::Arc};

use poem::{
    Request, RequestParts,
    http::{self, Extensions},
};

/// What the layers of a pipeline can know about a call: values by their type, and the request that it is made for.
///
/// Partition keys and priorities are taken from it.
///
/// ```
/// use resilience::pipeline::Context;
///
/// #[derive(Clone)]
/// struct Tenant(&'static str);
///
/// let context = Context::new().with(Tenant("acme"));
/// assert_eq!(context.get::<Tenant>().map(|tenant| tenant.0), Some("acme"));
/// assert!(context.request().is_none());
/// ```
///
/// An empty one costs nothing: no allocation is made before the first value.
#[derive(Clone, Default)]
pub struct Context {
    values: Extensions,
    request: Option<Arc<RequestParts>>,
}

impl Context {
    /// A context with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A context with a copy of the request's parts. The body stays with the request.
    #[must_use]
    pub fn of_request(request: &Request) -> Self {
        let mut copy = http::Request::new(());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        let addresses = (request.local_addr().clone(), request.remote_addr().clone());
        let parts = (copy.into_parts().0, addresses.0, addresses.1, request.scheme().clone());
        Self::new().with_request(Arc::new(parts.into()))
    }

    /// Names the request that the call is made for.
    #[must_use]
    pub fn with_request(mut self, request: Arc<RequestParts>) -> Self {
        self.request = Some(request);
        self
    }

    /// Adds a value, or replaces the one of the same type.
    #[must_use]
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.values.insert(value);
        self
    }

    /// The value of this type, if there is one. Extensions of the request are not looked at.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get()
    }

    /// The parts of the request that the call is made for, if it is made for one.
    #[must_use]
    pub fn request(&self) -> Option<&RequestParts> {
        self.request.as_deref()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("values", &self.values.len())
            .field("request", &self.request.as_ref().map(|request| &request.uri))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_s_parts_are_at_hand() {
        let mut request = Request::builder()
            .uri_str("/quote?n=1")
            .header("x-tenant", "acme")
            .finish();
        request.extensions_mut().insert(7_u8);
        let context = Context::of_request(&request).with("value");
        let parts = context.request().expect("it was made of one");
        assert_eq!(parts.uri.path(), "/quote");
        assert_eq!(parts.headers["x-tenant"], "acme");
        assert_eq!(parts.extensions.get::<u8>(), Some(&7));
        assert_eq!(context.get::<&str>(), Some(&"value"));
        assert_eq!(context.get::<u8>(), None);
    }
}
