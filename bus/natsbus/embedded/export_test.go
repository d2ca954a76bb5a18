package embedded

// Insist is how Remove asks until it is answered.
var Insist = insist
