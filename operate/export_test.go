package operate

var Number = number
