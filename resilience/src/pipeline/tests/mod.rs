mod cancel;
mod order;
mod rules;
