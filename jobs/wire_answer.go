package jobs

import "errors"

// CodeOf is the code of a refusal; of any other error it is Unknown, because nothing is known about it.
func CodeOf(err error) Code {
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	return Unknown
}
