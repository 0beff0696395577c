package safefile

// systemFile says to be empty and is not; there is none on this system, so it is an ordinary one.
const systemFile = "/etc/passwd"
