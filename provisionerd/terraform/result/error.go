package result

// Codes of a job's error.
const (
	codeVariables  = "REQUIRED_TEMPLATE_VARIABLES"
	CodeParameters = "INVALID_PARAMETERS"
	CodeCanceled   = "CANCELED"
	// CodeReplaces is the code of a build that would replace a kept resource that it may not replace.
	CodeReplaces = "REPLACES_RESOURCES"
)

// Error is an error with a code, by which the server and clients recognize it.
type Error struct {
	Code string // one of the codes above
	Err  error  // never nil
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
