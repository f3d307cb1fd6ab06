package profile

// TooShortLived is why most CPU time is not sampled that is not.
const TooShortLived = "threads too short-lived"
