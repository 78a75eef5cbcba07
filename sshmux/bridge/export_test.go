package bridge

// MaxRefused and ForgiveEvery are the limit of failed sign-ins.
const (
	MaxRefused   = maxRefused
	ForgiveEvery = forgiveEvery
)
