"""The words that tasks are made of."""


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words(
    "Ada Ben Clara David Emma Felix Grace Hugo Iris Jack Karl Laura Mara Nora Oscar Paula Quinn "
    "Rosa Sam Tina Umar Vera Will Xenia Yara Zoe Anna Bruno Carla Dora Erik Fiona Greta Hans Ines "
    "Jonas Kate Leo Mia Noah Olga Peter Rita Simon Theo Uma Victor Wendy Yusuf Lena"
)
CITIES = _words(
    "Paris Oslo Rome Berlin Madrid Vienna Lisbon Prague London Dublin Athens Cairo Tokyo Delhi "
    "Lima Quito Boston Denver Toronto Sydney Geneva Milan Porto Turin Kyoto Seoul Nairobi Havana "
    "Zurich Warsaw Helsinki Riga"
)
NOUNS = _words(
    "apple river stone table house garden window bridge forest mountain bird horse fox cat dog "
    "lamp book letter clock chair road ship boat train wheel bell drum flag key lock door tower "
    "castle island lake ocean cloud storm snow fire candle mirror basket bottle cup plate spoon "
    "knife coat hat shoe ring coin map pencil paper brush rope ladder hammer nail box bag shirt "
    "button needle thread blanket pillow bed wall roof floor field farm barn fence gate well cave "
    "hill valley beach sand shell fish whale shark frog snake mouse rabbit bear wolf lion tiger "
    "eagle owl duck goose cow sheep goat pig bee ant spider leaf root seed flower rose tree grass "
    "corn bread cheese butter honey sugar salt pepper soup cake pie egg milk tea coffee lemon "
    "orange cherry grape peach plum melon carrot potato onion bean rice piano violin guitar flute "
    "song dance game ball kite doll planet star moon comet desert canyon harbor market museum "
    "school office kitchen cellar attic"
)
ADJECTIVES = _words(
    "red blue green yellow black white brown grey old young small big tall short long quick slow "
    "loud quiet happy sad warm cold wet dry heavy light dark bright soft hard clean sharp round "
    "flat deep empty full strong weak brave gentle clever proud"
)
COLOURS = _words("red blue green yellow black white brown grey orange purple pink silver")
ANIMALS = _words(
    "fox cat dog horse rabbit bear wolf lion tiger eagle owl duck goose cow sheep goat pig frog "
    "mouse bird fish snake"
)
PLACES = _words(
    "garden house forest kitchen barn castle cave school market museum harbor office tower field "
    "valley attic cellar"
)
JOBS = _words("doctor teacher farmer baker sailor painter singer writer driver pilot nurse cook")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words(
    "January February March April May June July August September October November December"
)
CODE_SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
