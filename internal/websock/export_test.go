package websock

// RetryAfter is retryAfter.
var RetryAfter = retryAfter
