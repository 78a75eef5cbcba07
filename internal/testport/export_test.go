package testport

var IsFree = isFree
