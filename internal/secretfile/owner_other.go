//go:build !unix

package secretfile

import "io/fs"

// enforced is false where files have no modes.
const enforced = false

func ofRoot(fs.FileInfo) bool { return false }
