mod model;
mod scenarios;
mod windows;
