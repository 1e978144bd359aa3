mod simulation;
mod waiting;
