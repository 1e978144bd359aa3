mod model;
mod scenarios;
mod stress;
