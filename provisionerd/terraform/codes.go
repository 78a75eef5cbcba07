package terraform

// Codes of a result's error.
const (
	codeVariables  = "REQUIRED_TEMPLATE_VARIABLES"
	codeParameters = "INVALID_PARAMETERS"
	codeCanceled   = "CANCELED"
	// codeReplaces is the code of a build that would replace a kept resource that it may not replace.
	codeReplaces = "REPLACES_RESOURCES"
)

// codedError is an error with a code, by which the server and clients recognize it.
type codedError struct {
	code string
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }

func (e *codedError) Unwrap() error { return e.err }
