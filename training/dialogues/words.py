"""The word lists that the skills combine."""

from __future__ import annotations

__all__ = (
    "ANIMALS",
    "CAPITALS",
    "CITIES",
    "COLORS",
    "COMMON_WORDS",
    "COUNTRIES",
    "DAYS",
    "ITEMS",
    "MONTHS",
    "NAMES",
    "NUMBER_WORDS",
    "OPPOSITES",
    "PLURALS",
    "SEASONS",
    "THING_COLORS",
    "anybody",
    "invented_name",
    "person",
    "pick",
    "place",
    "random_letters",
)

import random
from collections.abc import Sequence
from typing import TypeVar

from training.dialogues.lists import phrases, words_of

T = TypeVar("T")

NAMES = words_of(
    "Aaron Ada Adam Aisha Alan Alba Alex Alice Alma Amara Amir Amy Ana Andre Anna Anton "
    "Arlo Arun Asha Astrid Ava Axel Bella Ben Bianca Bodil Boris Bruno Carla Carlos Carmen "
    "Cato Celia Chen Chloe Clara Colin Cora Dalia Dan Daria David Dean Diana Diego Dina "
    "Dora Edgar Edith Eli Elif Elin Ella Elsa Emil Emma Enzo Eric Erik Esme Ethan Eva "
    "Fatima Felix Fiona Flora Frank Freya Gita Gloria Grace Greta Gus Hana Hanna Harry "
    "Hassan Hector Hedda Helen Henry Hugo Ida Ines Ingrid Iris Isaac Ivan Ivy Jack Jacob "
    "Jade James Jana Jane Jasper Jin Joan Jonas Jorge Josef Juan Jude Julia June Kai Kamal "
    "Kara Karim Karl Kate Keiko Kenji Kim Klara Kofi Lara Lars Laura Lea Leila Lena Leo "
    "Leon Lia Lily Lina Linus Lisa Lola Lorna Louis Luca Lucas Lucy Luis Luna Magda Maja "
    "Malik Mara Marco Maria Mark Marta Martin Mary Mateo Max Maya Mei Mia Mike Mila Mina "
    "Mira Mona Nadia Naomi Nell Nico Nina Noah Noor Nora Olaf Olga Oliver Olivia Omar "
    "Oscar Otto Pablo Paul Paula Peter Petra Pia Priya Quinn Rafael Ravi Rita Robin Rosa "
    "Rose Ruby Ruth Sam Samir Sana Sara Selma Simon Sofia Sonja Stella Sven Tara Tariq "
    "Tessa Theo Thomas Tim Tina Tom Tomas Tove Ugo Uma Ursula Vera Victor Vidar Viola "
    "Walter Wanda Wendy Will Xenia Yara Yosef Yuki Yusuf Zara Zeno Zoe Zora"
)

_ONSETS = words_of("b br d dr f fl g gr h j k kl l m n p pr r s st t th tr v w y z sh")
_VOWELS = ["a", "e", "i", "o", "u", "ae", "ia", "ei", "oa"]
_CODAS = ("", "", "", "l", "n", "r", "s", "m", "k", "x", "th")

CITIES = words_of(
    "Paris London Berlin Madrid Rome Vienna Oslo Lisbon Dublin Prague Warsaw Athens "
    "Helsinki Cairo Tokyo Delhi Lima Boston Chicago Denver Dallas Seattle Toronto Sydney "
    "Porto Milan Munich Hamburg Lyon Geneva Bergen Krakow Seville Naples Leeds Bristol "
    "Osaka Mumbai Nairobi Lagos Quito Bogota"
)

COLORS = words_of("red blue green yellow orange purple pink black white brown grey gold silver")

ANIMALS = words_of(
    "cat dog rabbit hamster parrot turtle pony goat snake lizard mouse duck goose hen "
    "ferret frog horse donkey sheep canary"
)

ITEMS = words_of(
    "apple book pen cup hat lamp chair table bag shirt coat clock phone ball kite drum "
    "bike rope basket blanket candle mirror pillow plate spoon ticket toy umbrella vase "
    "watch scarf brush ladder bottle key map notebook ring tent bell"
)

PLURALS = words_of(
    "apples books pens cups hats lamps chairs tables bags shirts coats clocks balls kites "
    "drums bikes baskets candles mirrors pillows plates spoons tickets toys vases scarves "
    "ladders bottles keys maps rings tents bells coins stones shells cards stamps pears "
    "plums eggs cookies nuts"
)

COMMON_WORDS = words_of(
    "ant apple bear bell bird boat book bread cake car cat chair clock cloud cow cup desk "
    "dog door drum duck ear egg eye farm fish flag fox frog game gate glass goat hand hat "
    "hen hill horse house ink iron jam jar juice key king kite lake lamp leaf lion map "
    "milk moon mouse nest night nose nut oak oil orange owl pan pear pen pig queen rain "
    "ring river road rope rose salt sand ship shoe snow soap sock star stone sun table "
    "tent tiger tree umbrella van vase wall water wave wind wolf yard zebra zoo"
)

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)

SEASONS = {
    "winter": ("December", "January", "February"),
    "spring": ("March", "April", "May"),
    "summer": ("June", "July", "August"),
    "autumn": ("September", "October", "November"),
}

_ONES = words_of(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

NUMBER_WORDS = (
    *_ONES,
    *(f"{tens}-{_ONES[one]}" if one else tens for tens in _TENS for one in range(10)),
)

CAPITALS = dict(
    pair.split(":")
    for pair in phrases(
        "France:Paris|Germany:Berlin|Spain:Madrid|Italy:Rome|Portugal:Lisbon|Ireland:Dublin|"
        "Norway:Oslo|Sweden:Stockholm|Finland:Helsinki|Denmark:Copenhagen|Iceland:Reykjavik|"
        "Poland:Warsaw|Austria:Vienna|Hungary:Budapest|Greece:Athens|Turkey:Ankara|"
        "Russia:Moscow|Ukraine:Kyiv|Romania:Bucharest|Bulgaria:Sofia|Serbia:Belgrade|"
        "Croatia:Zagreb|Slovenia:Ljubljana|Slovakia:Bratislava|Belgium:Brussels|"
        "the Netherlands:Amsterdam|Switzerland:Bern|Estonia:Tallinn|Latvia:Riga|"
        "Lithuania:Vilnius|Albania:Tirana|Malta:Valletta|Cyprus:Nicosia|Egypt:Cairo|"
        "Morocco:Rabat|Tunisia:Tunis|Kenya:Nairobi|Ghana:Accra|Nigeria:Abuja|Senegal:Dakar|"
        "Ethiopia:Addis Ababa|Uganda:Kampala|Japan:Tokyo|China:Beijing|India:New Delhi|"
        "Nepal:Kathmandu|Thailand:Bangkok|Vietnam:Hanoi|Indonesia:Jakarta|South Korea:Seoul|"
        "Mongolia:Ulaanbaatar|Iran:Tehran|Iraq:Baghdad|Jordan:Amman|Lebanon:Beirut|"
        "Syria:Damascus|Canada:Ottawa|Mexico:Mexico City|Cuba:Havana|Jamaica:Kingston|"
        "Brazil:Brasilia|Argentina:Buenos Aires|Chile:Santiago|Peru:Lima|Colombia:Bogota|"
        "Ecuador:Quito|Venezuela:Caracas|Uruguay:Montevideo|Australia:Canberra|"
        "New Zealand:Wellington|the United States:Washington|the United Kingdom:London"
    )
)

COUNTRIES = tuple(CAPITALS)

THING_COLORS = dict(
    pair.split(":")
    for pair in phrases(
        "grass:green|snow:white|blood:red|coal:black|milk:white|the sky:blue|the sun:yellow|"
        "a banana:yellow|a lemon:yellow|a strawberry:red|a tomato:red|a cherry:red|"
        "a carrot:orange|a pumpkin:orange|a frog:green|a cucumber:green|a pea:green|"
        "spinach:green|broccoli:green|chocolate:brown|coffee:brown|a bear:brown|soil:brown|"
        "an elephant:grey|a mouse:grey|ash:grey|a rain cloud:grey|a flamingo:pink|a pig:pink|"
        "an aubergine:purple|a violet:purple|lavender:purple|a raven:black|a crow:black|"
        "tar:black|the night:black|a swan:white|a polar bear:white|salt:white|sugar:white|"
        "rice:white|cotton:white|paper:white|chalk:white|a tooth:white|an egg:white|"
        "the sea:blue|a blueberry:blue|a sapphire:blue|an emerald:green|a ruby:red|"
        "a fire engine:red|a rose:red|a ladybird:red|a brick:red|a stop sign:red|"
        "a canary:yellow|corn:yellow|butter:yellow|a sunflower:yellow|a lime:green|"
        "a leaf:green|moss:green|a fox:orange|a tangerine:orange|wood:brown|a chestnut:brown|"
        "leather:brown|a flame:orange|a penguin:black"
    )
)

OPPOSITES = dict(
    pair.split(":")
    for pair in words_of(
        "hot:cold big:small tall:short fast:slow up:down left:right day:night good:bad "
        "happy:sad light:dark old:young new:used open:closed full:empty wet:dry hard:soft "
        "high:low rich:poor strong:weak early:late near:far first:last loud:quiet clean:dirty "
        "thick:thin wide:narrow deep:shallow heavy:light long:short sweet:sour smooth:rough "
        "sharp:blunt true:false yes:no in:out on:off above:below before:after always:never "
        "inside:outside front:back top:bottom start:end buy:sell push:pull win:lose give:take "
        "love:hate laugh:cry ask:answer come:go arrive:leave rise:fall remember:forget "
        "find:hide build:destroy friend:enemy war:peace north:south east:west summer:winter "
        "morning:evening king:queen brave:afraid easy:difficult safe:dangerous cheap:expensive "
        "simple:complicated polite:rude awake:asleep alive:dead same:different many:few "
        "more:less"
    )
)

_SMALL_PLACES = words_of(
    "Ash Birch Brook Cedar Clear Elm Fern Green Hazel High Long Maple Mill Moss North Oak "
    "Pine Red River Silver South Stone Swan West White Wind"
)
_PLACE_ENDS = words_of("bury dale field ford ham haven hill mouth port ton ville wick wood worth")


def pick(rng: random.Random, choices: Sequence[T]) -> T:
    """Draw one of `choices`."""
    return choices[int(rng.random() * len(choices))]


def invented_name(rng: random.Random) -> str:
    """Draw an invented name of two or three syllables, which must be copied, not recalled."""
    syllables = [pick(rng, _ONSETS) + pick(rng, _VOWELS) for _ in range(rng.choice((2, 2, 3)))]
    return ("".join(syllables) + pick(rng, _CODAS)).capitalize()


def person(rng: random.Random) -> str:
    """Draw the name of a person: a common or an invented one."""
    return pick(rng, NAMES) if rng.random() < 0.6 else invented_name(rng)


def random_letters(rng: random.Random) -> str:
    """Draw a capitalized word that nobody has seen."""
    letters = [
        pick(rng, "aeiouéöü" if rng.random() < 0.05 else "aeiou")
        if rng.random() < 0.42
        else pick(rng, "bcdfghjklmnpqrstvwxyz")
        for _ in range(rng.randint(2, 8))
    ]
    return "".join(letters).capitalize()


def anybody(rng: random.Random) -> str:
    """Draw any name: common, invented or of random letters, sometimes with a surname."""

    def part() -> str:
        return person(rng) if rng.random() < 0.75 else random_letters(rng)

    return f"{part()} {part()}" if rng.random() < 0.12 else part()


def place(rng: random.Random) -> str:
    """Draw the name of a town: a real, a composed or an invented one."""
    draw = rng.random()
    if draw < 0.5:
        return pick(rng, CITIES)
    if draw < 0.8:
        return pick(rng, _SMALL_PLACES) + pick(rng, _PLACE_ENDS)
    return invented_name(rng)
