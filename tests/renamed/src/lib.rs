//! The attribute must find its runtime under the name that a `Cargo.toml` gives it.

#[cfg(test)]
mod tests {
    use guarded::resilient;
    use poem::{Endpoint, handler};

    #[resilient(flag("checkout", default = false), rate_limit(30, 60))]
    #[handler]
    async fn checkout() -> &'static str {
        "ok"
    }

    fn assert_endpoint(_: impl Endpoint) {}

    #[test]
    fn a_guarded_handler_is_an_endpoint() {
        assert_endpoint(checkout);
    }
}
