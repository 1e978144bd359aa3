mod estimates;
mod model;
mod simulation;
mod stress;
mod waiting;
