// The declaration without a body in window.go needs an assembly file beside it.
